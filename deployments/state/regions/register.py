"""The register of regions in the database that they share. Each signs in again and again, with what others should know.

The clocks of regions may differ by some seconds: the times are only compared to say which rows are old.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update

from deployments.state.audit_log import SERVICE, Actor, append_entry
from deployments.state.database.connection import Database
from deployments.state.database.tables.service import regions as table

LIVING_S = 30.0
"""A region that has not signed in for so long counts as gone."""


class RegionUnknown(LookupError):
    """No region of this name has signed in."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region as it signed in at `seen_at`.

    `facts` is JSON: `version`, `replicas`, `health`. It is drained since `drained_at`, if that is not null.
    """

    name: str
    seen_at: float
    drained_at: float | None
    facts: Mapping[str, Any]

    def is_living(self, now: float) -> bool:
        """Return whether it has signed in lately."""
        return now - self.seen_at <= LIVING_S


class RegionRegister:
    """The regions of one database. Every method raises DBAPIError if it is away.

    The audit log has changes `by` an actor.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def sign_in(self, name: str, facts: Mapping[str, Any]) -> None:
        """Note that a region is there."""
        seen = {"seen_at": self._clock(), "facts": dict(facts)}
        of_region = update(table).where(table.c.name == name).values(seen)
        async with self._database.write() as connection:
            if (await connection.execute(of_region)).rowcount == 0:
                added = self._database.insert_or_ignore(table).values(name=name, **seen)
                await connection.execute(added)

    async def all_regions(self) -> list[Region]:
        """Return the regions that have ever signed in, by name."""
        query = select(table).order_by(table.c.name)
        async with self._database.read() as connection:
            return [Region(**row) for row in (await connection.execute(query)).mappings()]

    async def drain(self, name: str, by: Actor = SERVICE) -> None:
        """Have a region take no new requests; nothing changes where it takes none already.

        Raises:
            RegionUnknown: no region of this name has signed in.
        """
        await self._set(name, self._clock(), "region.drained", by)

    async def undrain(self, name: str, by: Actor = SERVICE) -> None:
        """Have a region take requests again.

        Raises:
            RegionUnknown: no region of this name has signed in.
        """
        await self._set(name, None, "region.undrained", by)

    async def forget(self, name: str, by: Actor = SERVICE) -> None:
        """Take a region out of the register; one that still runs signs in again.

        Raises:
            RegionUnknown: no region of this name has signed in.
        """
        async with self._database.write() as connection:
            if (await connection.execute(delete(table).where(table.c.name == name))).rowcount == 0:
                raise RegionUnknown(name)
            await append_entry(connection, "region.forgotten", by, name, clock=self._clock)

    async def _set(self, name: str, drained_at: float | None, event: str, by: Actor) -> None:
        """Drain a region or take it back, under the name of an event in the audit log if that changes anything."""
        known = select(table.c.drained_at).where(table.c.name == name).with_for_update()
        async with self._database.write() as connection:
            row = (await connection.execute(known)).one_or_none()
            if row is None:
                raise RegionUnknown(name)
            if (row.drained_at is None) != (drained_at is None):
                await connection.execute(update(table).where(table.c.name == name).values(drained_at=drained_at))
                await append_entry(connection, event, by, name, clock=self._clock)
