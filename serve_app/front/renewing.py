"""Has an ingress replica's server take up a certificate that has changed.

Ray Serve starts the server and keeps it to itself, so it is looked for when there is something to give it. New
connections then get the new certificate; none is lost.
"""

import asyncio
import gc
import logging
import ssl
from pathlib import Path

import uvicorn

from deployments.waiting import Watch
from serve_app.front.files import FileMarks
from serve_app.front.timings import USUAL

logger = logging.getLogger(__name__)


class CertificateRenewal(Watch):
    """Looks at the files of a certificate and its key again and again."""

    def __init__(self, certificate: Path, key: Path, interval_s: float = USUAL.renew_s) -> None:
        self._certificate, self._key = certificate, key
        self._interval_s = interval_s
        self._marks = FileMarks((certificate, key))
        self._marks.have_changed()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._marks.have_changed():
                self._renew()

    def _renew(self) -> None:
        try:  # First where it does no harm: a pair that does not fit would leave a server without one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            for context in _served():
                context.load_cert_chain(self._certificate, self._key)
        except (OSError, ValueError) as error:  # An SSLError is an OSError.
            logger.error("The certificate stays as it is: %s and %s: %s", self._certificate, self._key, error)


def _served() -> list[ssl.SSLContext]:
    """Return the contexts of the servers in this process, also of one that was frozen for the garbage collector."""
    gc.unfreeze()
    configs = [found for found in gc.get_objects() if type(found) is uvicorn.Config]
    gc.freeze()
    return [config.ssl for config in configs if config.loaded and config.ssl is not None]
