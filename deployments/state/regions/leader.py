"""Which of several regions does what only one needs to do, such as housekeeping: the one that holds the lease.

The lease is a row of the shared database. What is done under it is safe to do twice: a leader that was paused may
finish what it had begun after another has taken over. The lease spares the work, and `manta regions` shows who leads.
"""

import time
from collections.abc import Callable, Mapping

from sqlalchemy import select

from deployments.state.database.connection import Database
from deployments.state.database.queues import LeaseWatch
from deployments.state.database.tables.service import leaders as table

LEASE_S = 30.0
HOUSEKEEPING = "housekeeping"


class Leadership:
    """The lease called `name`, as `region` holds it or waits for it."""

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
            DBAPIError: the database is away; nobody leads then.
        """
        of_name = table.c.name == self._name
        async with self._database.write() as connection:
            first = {"name": self._name, "region": "", "epoch": 0, "lease_until": 0.0}
            await connection.execute(self._database.insert_or_ignore(table).values(first))
            query = select(table.c.region, table.c.epoch, table.c.lease_until).where(of_name).with_for_update()
            region, epoch, lease_until = (await connection.execute(query)).one()
            now = self._clock()
            if region != self._region:
                is_abandoned = self._watch.is_abandoned(self._name, (epoch, lease_until), LEASE_S)
                if lease_until > now and not is_abandoned:
                    return False
                epoch += 1
            values = {"region": self._region, "epoch": epoch, "lease_until": now + LEASE_S}
            await connection.execute(table.update().where(of_name).values(values))
        return True


async def leaders(database: Database) -> Mapping[str, str]:
    """Return the region that led each kind of work last, by the name of its lease."""
    async with database.read() as connection:
        rows = await connection.execute(select(table.c.name, table.c.region).order_by(table.c.name))
        return {name: region for name, region in rows if region}
