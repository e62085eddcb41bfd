"""TLS between the processes of a service: certificates by path, read again when their files change.

Every node has a certificate of one authority that the operator keeps for nothing else, in files of the same paths. All
certificates carry one name, so that none has to list addresses that change. Both ends show theirs.
"""

import contextlib
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pydantic import Field

from deployments.config import ConfigError, Section


class TlsConfig(Section):
    """TLS inside the cluster: to ingress replicas, and on the side channel. Files in PEM, at these paths on every node.

    Args:
        certificate: the node's certificate with its chain.
        key: its key, without a password.
        authority: the certificates that the others' certificates are checked against.
        name: the DNS name that every node's certificate carries.
    """

    certificate: Path
    key: Path
    authority: Path
    name: str = Field(default="manta", pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")

    def files(self) -> "TlsFiles":
        """Return the section as a process hands it on."""
        return TlsFiles(
            certificate=str(self.certificate), key=str(self.key), authority=str(self.authority), name=self.name
        )


class TlsFiles(TypedDict):
    """The paths of a certificate, its key and the authority, and the name that the other end's certificate carries."""

    certificate: str
    key: str
    authority: str
    name: str


@dataclass(slots=True)
class _Known:
    marks: tuple[object, ...]
    context: ssl.SSLContext


_clients: dict[tuple[str, ...], _Known] = {}


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a server that asks its clients for their certificates.

    Each connection that comes after the files have changed gets the new ones; what cannot be used changes nothing.

    Raises:
        ConfigError: the files cannot be used.
    """
    known = _Known(_marks(files), _load(files, ssl.PROTOCOL_TLS_SERVER))
    outer = _load(files, ssl.PROTOCOL_TLS_SERVER)

    def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if (marks := _marks(files)) != known.marks:
            with contextlib.suppress(ConfigError):
                known.context = _load(files, ssl.PROTOCOL_TLS_SERVER)
            known.marks = marks
        connection.context = known.context

    outer.sni_callback = choose
    return outer


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a client that shows its certificate, made anew when the files have changed.

    Raises:
        ConfigError: the files cannot be used.
    """
    key = files["certificate"], files["key"], files["authority"]
    marks = _marks(files)
    known = _clients.get(key)
    if known is None or known.marks != marks:
        try:
            known = _clients[key] = _Known(marks, _load(files, ssl.PROTOCOL_TLS_CLIENT))
        except ConfigError:
            if known is None:
                raise
    return known.context


def _load(files: TlsFiles, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(files["authority"])
        context.load_cert_chain(files["certificate"], files["key"], password=_no_password)
    except (OSError, ValueError) as error:  # An SSLError is an OSError.
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        paths = f"{files['certificate']}, {files['key']} and {files['authority']}"
        raise ConfigError(f"The files of tls ({paths}) cannot be used: {reason}.") from None
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give it without a password")


def _marks(files: TlsFiles) -> tuple[object, ...]:
    """Return what changes when one of the files does."""
    marks: list[object] = []
    for path in (files["certificate"], files["key"], files["authority"]):
        try:
            stat = os.stat(path)
        except OSError as error:
            marks.append(error.errno)
        else:
            marks.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(marks)
