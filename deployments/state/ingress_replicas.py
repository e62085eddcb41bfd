"""The register of ingress replicas. Each renews its registration; a replica that has stopped drops out of the list.

The nodes' clocks may differ by some seconds: the times only tell which rows are old.
"""

import time
from collections.abc import Callable

from sqlalchemy import delete, select

from deployments.state.database.connection import Database
from deployments.state.database.tables.service import ingress_replicas as table

LIVING_S = 60.0
"""A replica that has not signed in for this time counts as stopped."""


class IngressRegister:
    """The ingress replicas of one region, empty if there is only one; `sweep` is for all regions.

    Every method raises DBAPIError if the database is away.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time, region: str = "") -> None:
        self._database = database
        self._clock = clock
        self._region = region

    async def sign_in(self, address: str) -> None:
        """Note that a replica listens at HOST:PORT."""
        statement = self._database.upsert(table, ["region", "address"])
        row = {"region": self._region, "address": address, "seen_at": self._clock()}
        await self._database.execute(statement, row)

    async def sign_out(self, address: str) -> None:
        """Note that a replica drains."""
        own = (table.c.region == self._region) & (table.c.address == address)
        await self._database.execute(delete(table).where(own))

    async def living(self, within_s: float = LIVING_S) -> list[str]:
        """Return the addresses of the replicas whose last sign-in is at most `within_s` seconds old, sorted."""
        since = self._clock() - within_s
        living = (table.c.region == self._region) & (table.c.seen_at >= since)
        async with self._database.read() as connection:
            rows = await connection.execute(select(table.c.address).where(living))
            return sorted(rows.scalars())

    async def sweep(self) -> int:
        """Delete the rows of replicas that have stopped; return how many."""
        async with self._database.write() as connection:
            deleted = await connection.execute(delete(table).where(table.c.seen_at < self._clock() - LIVING_S))
            return deleted.rowcount
