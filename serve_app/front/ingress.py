"""What an ingress replica runs for the fronts: its registration, and the renewal of its certificate."""

import asyncio
import gc
import ipaddress
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import uvicorn
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from deployments.files import FileMarks
from deployments.state.ingress_replicas import IngressRegister
from deployments.waiting import Watch, repeat
from serve_app.front.addresses import Address
from serve_app.front.settings import replica_ports
from serve_app.front.timings import USUAL, FrontTimings

logger = logging.getLogger(__name__)

_MAX_LOOKS = 60


class Registration(Watch):
    """Keeps one replica in the register, and reads the addresses of the others there.

    `find_address` returns the address of this process, None until it listens. Replicas that listen on loopback only are
    not registered: the fronts of their own node find them without it. While the database is away, the last list stays.
    """

    def __init__(
        self, register: IngressRegister, find_address: Callable[[], Address | None], timings: FrontTimings = USUAL
    ) -> None:
        self._register = register
        self._find_address = find_address
        self._timings = timings
        self._address: Address | None = None
        self._others: list[str] = []

    def others(self) -> list[str]:
        """Return the addresses of all registered replicas, as HOST:PORT."""
        return self._others

    def own(self) -> str | None:
        """Return this replica's address as HOST:PORT, None until it listens where other nodes reach it."""
        return None if self._address is None else str(self._address)

    @override
    async def close(self) -> None:
        await super().close()
        if self._address is not None:
            with suppress(DBAPIError):
                await self._register.sign_out(str(self._address))

    @override
    async def _keep(self) -> None:
        for _ in range(_MAX_LOOKS):
            self._address = await asyncio.to_thread(self._find_address)
            if self._address is not None:
                break
            await asyncio.sleep(self._timings.watch_s)
        else:
            return
        await repeat("Registering this ingress replica", self._timings.save_s, self._sign_in, (DBAPIError,))

    async def _sign_in(self) -> None:
        await self._register.sign_in(str(self._address))
        self._others = await self._register.living()


def own_address(node_ip: str) -> Address | None:
    """Return the address of this process's HTTP port; None while it has none that other nodes reach."""
    first, last = replica_ports()
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and first <= connection.laddr.port <= last:
            host = ipaddress.ip_address(connection.laddr.ip)
            if host.is_loopback:
                return None
            return Address(node_ip if host.is_unspecified else str(host), connection.laddr.port)
    return None


class CertificateRenewal(Watch):
    """Gives this replica's server a certificate that has changed. New connections get it; none is lost."""

    def __init__(self, certificate: Path, key: Path, interval_s: float = USUAL.renew_s) -> None:
        self._certificate, self._key = certificate, key
        self._interval_s = interval_s
        self._marks = FileMarks((certificate, key))
        self._marks.have_changed()

    @override
    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._marks.have_changed():
                self._renew()

    def _renew(self) -> None:
        try:  # First where it does no harm: a pair that does not fit would leave a server without one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            for context in _server_contexts():
                context.load_cert_chain(self._certificate, self._key)
        except (OSError, ValueError) as error:  # An SSLError is an OSError.
            logger.error("The certificate stays as it is: %s and %s: %s", self._certificate, self._key, error)


def _server_contexts() -> list[ssl.SSLContext]:
    """Return the contexts of the servers in this process: Ray Serve starts its server and gives nobody the handle.

    The server may be frozen for the garbage collector.
    """
    gc.unfreeze()
    configs = [found for found in gc.get_objects() if type(found) is uvicorn.Config]
    gc.freeze()
    return [config.ssl for config in configs if config.loaded and config.ssl is not None]
