"""An ingress replica's entry in the register, and the list of the others that it reads there.

Where replicas have no ports of their own, or listen on loopback only, there is nothing to register: fronts find the
replicas of their own node without it. A database that is away leaves the last list as it was.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from contextlib import suppress

import psutil
from sqlalchemy.exc import DBAPIError

from deployments.state.ingress_replicas import IngressRegister
from deployments.waiting import Watch, worth_logging
from serve_app.front.addresses import Address
from serve_app.front.settings import replica_ports
from serve_app.front.timings import USUAL, FrontTimings

logger = logging.getLogger(__name__)

_MAX_LOOKS = 60


class Presence(Watch):
    """Keeps one replica in the register. `find_address` returns where this process can be reached, once it can."""

    def __init__(
        self,
        register: IngressRegister,
        find_address: Callable[[], Address | None],
        timings: FrontTimings = USUAL,
    ) -> None:
        self._register = register
        self._find_address = find_address
        self._timings = timings
        self._address: Address | None = None
        self._others: list[str] = []

    def others(self) -> list[str]:
        """Return where the replicas of the service listen, as far as this one knows."""
        return self._others

    def own(self) -> str | None:
        """Return this replica's address as HOST:PORT, None until it listens where other nodes reach it."""
        return None if self._address is None else str(self._address)

    async def close(self) -> None:
        """Sign out."""
        await super().close()
        if self._address is not None:
            with suppress(DBAPIError):
                await self._register.sign_out(str(self._address))

    async def _keep(self) -> None:
        for _ in range(_MAX_LOOKS):
            self._address = await asyncio.to_thread(self._find_address)
            if self._address is not None:
                break
            await asyncio.sleep(self._timings.watch_s)
        else:
            return
        num_failures = 0
        while True:
            try:
                await self._register.sign_in(str(self._address))
                self._others = await self._register.living()
                num_failures = 0
            except DBAPIError as error:
                num_failures += 1
                if worth_logging(num_failures):
                    logger.warning("The register of ingress replicas is away: %s", type(error).__name__)
            await asyncio.sleep(self._timings.save_s)


def own_address(node_ip: str) -> Address | None:
    """Return where other nodes reach this process's HTTP port; None while it has none that they reach."""
    first, last = replica_ports()
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and first <= connection.laddr.port <= last:
            host = ipaddress.ip_address(connection.laddr.ip)
            if host.is_loopback:
                return None
            return Address(node_ip if host.is_unspecified else str(host), connection.laddr.port)
    return None
