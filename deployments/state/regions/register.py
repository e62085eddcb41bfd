"""The register of regions in the database that they share, the leases of work for one of them, and the standbys.

Each region signs in every few seconds, with facts for the others. The clocks of regions may differ by some seconds:
times are only compared to find old rows.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, text, update

from deployments.state.audit_log import SERVICE, Actor, append_entry
from deployments.state.database.connection import Database
from deployments.state.database.queues import LeaseWatch
from deployments.state.database.tables.service import leaders as lease_table
from deployments.state.database.tables.service import regions as table

LEASE_S = 30.0
HOUSEKEEPING = "housekeeping"
LIVING_S = 30.0
"""A region that has not signed in for this long counts as gone."""
_STANDBYS = text(
    "SELECT application_name, sync_state, EXTRACT(EPOCH FROM COALESCE(replay_lag, interval '0')), "
    "COALESCE(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0) "
    "FROM pg_stat_replication WHERE state = 'streaming' ORDER BY application_name"
)


class RegionUnknown(LookupError):
    """No region of this name has signed in."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region that signed in at `seen_at`, and is drained since `drained_at`, if that is not None.

    `facts` is JSON: `version`, `replicas`, `health`.
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
        """Note that a region is alive, with its facts."""
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
        """Drain a region: it takes no new requests. A drained region stays drained.

        Raises:
            RegionUnknown: no region of this name has signed in.
        """
        await self._set(name, self._clock(), "region.drained", by)

    async def undrain(self, name: str, by: Actor = SERVICE) -> None:
        """Let a region take requests again.

        Raises:
            RegionUnknown: no region of this name has signed in.
        """
        await self._set(name, None, "region.undrained", by)

    async def forget(self, name: str, by: Actor = SERVICE) -> None:
        """Remove a region from the register; a region that still runs signs in again.

        Raises:
            RegionUnknown: no region of this name has signed in.
        """
        async with self._database.write() as connection:
            if (await connection.execute(delete(table).where(table.c.name == name))).rowcount == 0:
                raise RegionUnknown(name)
            await append_entry(connection, "region.forgotten", by, name, clock=self._clock)

    async def _set(self, name: str, drained_at: float | None, event: str, by: Actor) -> None:
        """Set whether a region is drained, with an event in the audit log if that changes anything."""
        known = select(table.c.drained_at).where(table.c.name == name).with_for_update()
        async with self._database.write() as connection:
            row = (await connection.execute(known)).one_or_none()
            if row is None:
                raise RegionUnknown(name)
            if (row.drained_at is None) != (drained_at is None):
                await connection.execute(update(table).where(table.c.name == name).values(drained_at=drained_at))
                await append_entry(connection, event, by, name, clock=self._clock)


class Leadership:
    """The lease called `name` by which one of several regions does common work; `region` holds it or waits for it.

    The lease only spares work, which is safe to do twice: a leader that was paused may finish its work after another
    region has taken over. `manta regions` shows the leader.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        region: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._name = name
        self._region = region
        self._clock = clock
        self._watch = LeaseWatch(monotonic)

    async def hold(self) -> bool:
        """Take the lease if it is free, renew it if this region has it; return whether this region leads.

        Raises:
            DBAPIError: the database is away; no region leads then.
        """
        of_name = lease_table.c.name == self._name
        async with self._database.write() as connection:
            first = {"name": self._name, "region": "", "epoch": 0, "lease_until": 0.0}
            await connection.execute(self._database.insert_or_ignore(lease_table).values(first))
            query = (
                select(lease_table.c.region, lease_table.c.epoch, lease_table.c.lease_until)
                .where(of_name)
                .with_for_update()
            )
            region, epoch, lease_until = (await connection.execute(query)).one()
            now = self._clock()
            if region != self._region:
                is_abandoned = self._watch.is_abandoned(self._name, (epoch, lease_until), LEASE_S)
                if lease_until > now and not is_abandoned:
                    return False
                epoch += 1
            values = {"region": self._region, "epoch": epoch, "lease_until": now + LEASE_S}
            await connection.execute(lease_table.update().where(of_name).values(values))
        return True


async def leaders(database: Database) -> Mapping[str, str]:
    """Return the last leader of each kind of work, by the name of its lease."""
    async with database.read() as connection:
        rows = await connection.execute(select(lease_table.c.name, lease_table.c.region).order_by(lease_table.c.name))
        return {name: region for name, region in rows if region}


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby of the database: how far it is behind, and whether commits wait for it."""

    name: str
    is_synchronous: bool
    lag_s: float
    lag_bytes: int


async def standbys(database: Database) -> Sequence[Standby]:
    """Return the standbys that follow the primary; none on SQLite, or without the role pg_monitor.

    Raises:
        DBAPIError: the database is away, or has no primary.
    """
    if database.is_sqlite:
        return []
    async with database.read() as connection:
        rows = (await connection.execute(_STANDBYS)).all()
    return [Standby(name, state in ("sync", "quorum"), float(lag), int(num)) for name, state, lag, num in rows]
