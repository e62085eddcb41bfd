"""The front's certificate: read from the operator's files, and given to the HAProxy processes when the files change.

HAProxy takes a new certificate over its runtime socket, so no connection is lost. What it reads at its own start is a
copy in the run directory, of a pair of files that belonged together when they were read: an operator's tools write one
file after the other.
"""

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path

from deployments.private_folder import make_private_folder
from serve_app.front.files import FileMarks, write_private
from serve_app.front.runtime import Runtime, RuntimeFailed
from serve_app.front.settings import FrontSettings, TlsFiles

logger = logging.getLogger(__name__)


class CertificateFailed(Exception):
    """The files cannot be read, or do not belong together; the message says which."""


def read_certificate(files: TlsFiles) -> str:
    """Return the chain and its key as one text in PEM, without empty lines.

    Raises:
        CertificateFailed: there is no such pair.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key, password=_no_password)
        text = Path(files.certificate).read_text() + "\n" + Path(files.key).read_text()
    except ssl.SSLError as error:
        reason = "is no certificate with its key" if error.reason is None else error.reason.lower().replace("_", " ")
        raise CertificateFailed(f"{files.certificate} and {files.key}: {reason}.") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CertificateFailed(f"{files.certificate} and {files.key}: {reason}.") from None
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


def _no_password() -> str:
    raise ValueError("the key is encrypted; give it without a password")


class CertificateKeeper:
    """Keeps a front's HAProxy processes at the certificate in the operator's files."""

    def __init__(self, settings: FrontSettings, files: TlsFiles) -> None:
        self._path = settings.certificate_path
        self._files = files
        self._marks = FileMarks((files.certificate, files.key))
        self._pem = ""
        self._stale: set[int] = set()

    def keep(self, runtimes: Sequence[Runtime]) -> None:
        """Give a certificate that has changed to every process; one that cannot be used is logged once."""
        if self._marks.have_changed():
            try:
                pem = read_certificate(self._files)
            except CertificateFailed as error:
                logger.error("The certificate stays as it is. %s", error)
            else:
                if pem != self._pem:
                    write_private(self._path, pem)
                    self._pem = pem
                    self._stale = set(range(len(runtimes)))
        for number in sorted(self._stale):
            try:
                runtimes[number].replace_certificate(self._path, self._pem)
            except RuntimeFailed as error:
                logger.warning("HAProxy %d does not take the certificate yet: %s", number, error)
            else:
                self._stale.discard(number)


class AuthorityKeeper:
    """Keeps HAProxy's copy of an operator's file of an authority.

    HAProxy takes no other authority for its servers while it runs, so the supervisor replaces the processes when the
    copy changes.
    """

    def __init__(self, file: str, path: Path) -> None:
        """Take the operator's file, and the path of the copy."""
        self._path = path
        self._marks = FileMarks([file])
        self._file = file
        self._pem = path.read_text() if path.exists() else ""

    def keep(self) -> None:
        """Copy an authority that has changed; one that cannot be used is logged once."""
        if not self._marks.have_changed():
            return
        try:
            pem = read_authority(self._file)
        except CertificateFailed as error:
            logger.error("The authority stays as it is. %s", error)
            return
        if pem != self._pem:
            write_private(self._path, pem)
            self._pem = pem


def read_authority(file: str) -> str:
    """Return the certificates in a file as one text in PEM, without empty lines.

    Raises:
        CertificateFailed: there are none.
    """
    try:
        text = Path(file).read_text()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise CertificateFailed(f"{file}: holds no certificates.") from None
    except OSError as error:
        raise CertificateFailed(f"{file}: {error.strerror}.") from None
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


def write_copies(settings: FrontSettings) -> None:
    """Put what HAProxy reads at its start into the run directory: its certificate, and whom it believes.

    Raises:
        CertificateFailed: a file cannot be used.
        OSError: it cannot be written.
    """
    copies = [(path, read_authority(file)) for file, path in settings.believed]
    if settings.tls is not None:
        copies.append((settings.certificate_path, read_certificate(settings.tls)))
    make_private_folder(settings.run_dir)
    for path, pem in copies:
        write_private(path, pem)
