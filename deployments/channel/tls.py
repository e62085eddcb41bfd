"""TLS between the processes of a service: certificates by path, read again when their files change.

Every node has a certificate of an authority that signs nothing else, in files of the same paths. All certificates carry
one name, because addresses change. Both ends of a connection show their certificates.
"""

import contextlib
import ssl
from pathlib import Path
from typing import TypedDict

from pydantic import Field

from deployments.config import ConfigError, Section
from deployments.files import FileMarks


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
        """Return the paths as text, for other processes."""
        return TlsFiles(
            certificate=str(self.certificate), key=str(self.key), authority=str(self.authority), name=self.name
        )


class TlsFiles(TypedDict):
    """The paths of a certificate, its key and the authority, and the name that the other end's certificate carries."""

    certificate: str
    key: str
    authority: str
    name: str


class _RenewedContext:
    """The context of `files`, loaded again when they change. New files that cannot be used change nothing."""

    def __init__(self, files: TlsFiles, protocol: int) -> None:
        self._files = files
        self._protocol = protocol
        self._marks = FileMarks([files["certificate"], files["key"], files["authority"]])
        self._marks.have_changed()
        self._context = _load(files, protocol)

    def get(self) -> ssl.SSLContext:
        if self._marks.have_changed():
            with contextlib.suppress(ConfigError):
                self._context = _load(self._files, self._protocol)
        return self._context


_clients: dict[tuple[str, ...], _RenewedContext] = {}


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a server that checks its clients' certificates. New connections get changed files.

    Raises:
        ConfigError: the files cannot be used.
    """
    renewed = _RenewedContext(files, ssl.PROTOCOL_TLS_SERVER)
    outer = _load(files, ssl.PROTOCOL_TLS_SERVER)

    def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = renewed.get()

    outer.sni_callback = choose
    return outer


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a client that shows its certificate.

    Raises:
        ConfigError: the files cannot be used.
    """
    key = files["certificate"], files["key"], files["authority"]
    if key not in _clients:
        _clients[key] = _RenewedContext(files, ssl.PROTOCOL_TLS_CLIENT)
    return _clients[key].get()


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
