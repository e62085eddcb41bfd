"""HAProxy's copies of the operator's certificate and trusted authorities, renewed when the operator's files change.

HAProxy takes a new certificate over its runtime socket, so no connection is lost. At its own start it reads a copy in
the run directory, made when certificate and key belonged together: an operator's tools write one file after the other.
HAProxy cannot change the authorities of its servers while it runs, so the supervisor replaces the processes when those
copies change.
"""

import logging
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from deployments.files import FileMarks, write_private
from deployments.private_folder import make_private_folder
from serve_app.front.runtime import Runtime, RuntimeFailed
from serve_app.front.settings import NUM_PROXIES, FrontSettings, TlsFiles

logger = logging.getLogger(__name__)


class CertificateFailed(Exception):
    """The files cannot be read, or do not belong together; the message names them."""


def read_certificate(files: TlsFiles) -> str:
    """Return the chain and its key as one PEM text, without empty lines.

    Raises:
        CertificateFailed: the files hold no such pair.
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
    return _without_empty_lines(text)


def read_authority(file: str) -> str:
    """Return the certificates in a file as one PEM text, without empty lines.

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
    return _without_empty_lines(text)


class PemCopy:
    """HAProxy's copy at `path` of the operator's `files`; `read` returns their content."""

    def __init__(self, path: Path, files: Sequence[str], read: Callable[[], str]) -> None:
        self.path = path
        self.read = read
        self.pem = path.read_text() if path.exists() else ""
        self._marks = FileMarks(files)

    def refresh(self) -> bool:
        """Copy files that have changed; return whether the copy is new. Files that cannot be used are logged once."""
        if not self._marks.have_changed():
            return False
        try:
            pem = self.read()
        except CertificateFailed as error:
            logger.error("The certificate stays as it is. %s", error)
            return False
        if pem == self.pem:
            return False
        write_private(self.path, pem)
        self.pem = pem
        return True


class CertificateKeeper:
    """Keeps the copies up to date, and gives a new certificate to the HAProxy processes."""

    def __init__(self, settings: FrontSettings) -> None:
        self._authorities, self._certificate = _copies(settings)
        self._stale = set(range(NUM_PROXIES))

    def keep(self, runtimes: Sequence[Runtime]) -> None:
        """Renew the copies, and give the certificate to every process that has another."""
        for authority in self._authorities:
            authority.refresh()
        certificate = self._certificate
        if certificate is None:
            return
        if certificate.refresh():
            self._stale = set(range(len(runtimes)))
        for number in sorted(self._stale) if certificate.pem else ():
            try:
                runtimes[number].replace_certificate(certificate.path, certificate.pem)
            except RuntimeFailed as error:
                logger.warning("HAProxy %d does not take the certificate yet: %s", number, error)
            else:
                self._stale.discard(number)


def write_copies(settings: FrontSettings) -> None:
    """Write the certificate and the authorities that HAProxy reads at its start into the run directory.

    Raises:
        CertificateFailed: a file cannot be used.
        OSError: a copy cannot be written.
    """
    authorities, certificate = _copies(settings)
    copies = [(copy.path, copy.read()) for copy in (*authorities, *filter(None, [certificate]))]
    make_private_folder(settings.run_dir)
    for path, pem in copies:
        write_private(path, pem)


def _copies(settings: FrontSettings) -> tuple[list[PemCopy], PemCopy | None]:
    """Return the copies of the authorities, and that of the certificate, None without TLS."""
    authorities = [PemCopy(path, [file], partial(read_authority, file)) for file, path in settings.authorities]
    if (tls := settings.tls) is None:
        return authorities, None
    files = [tls.certificate, tls.key]
    return authorities, PemCopy(settings.certificate_path, files, partial(read_certificate, tls))


def _without_empty_lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


def _no_password() -> str:
    raise ValueError("the key is encrypted; give it without a password")
