"""Detects abandoned leases with the local monotonic clock; the work queues use it to find what they may claim."""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, and_, or_, select, update

from deployments.state.database.connection import Database

_LOOKED_AT = 1000
R = TypeVar("R", bound=Sequence[Any])


def may_be_free(lease_until: ColumnElement[float], now: float, lease_s: float) -> ColumnElement[bool]:
    """Return the condition for rows whose lease has ended, or ends later than one that was taken just now."""
    return or_(lease_until <= now, lease_until > now + lease_s)


class LeaseWatch:
    """What one process has seen of the leases of other processes.

    A lease ends at a time of its holder's wall clock. If that clock was ahead, the time is further away than a lease
    lasts, and nothing would end the lease of a dead holder. So a lease also ends when it has not changed for its whole
    length by the observer's monotonic clock: a living holder renews it more often.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}

    def free(self, rows: Sequence[R], now: float, lease_s: float) -> list[R]:
        """Return the rows whose lease has ended or is abandoned; `rows` are all rows that `may_be_free` selects.

        The last two columns of a row are its lease: holder and end. The columns before them are the row's name.
        """
        names = {tuple(row[:-2]) for row in rows if row[-1] > now}
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        return [
            row for row in rows if row[-1] <= now or self.is_abandoned(tuple(row[:-2]), (row[-2], row[-1]), lease_s)
        ]

    async def end_abandoned(
        self,
        database: Database,
        names: Sequence[ColumnElement[Any]],
        lease: tuple[ColumnElement[Any], ColumnElement[float]],
        now: float,
        lease_s: float,
        *of_queue: ColumnElement[bool],
    ) -> None:
        """End the leases in a queue's table that are abandoned: then they end now, as others do by themselves.

        `names` are the columns of a row's name, `lease` those of the holder and the end of its lease.
        """
        ahead = select(*names, *lease).where(*of_queue, lease[1] > now + lease_s).limit(_LOOKED_AT)
        async with database.read() as connection:
            rows = (await connection.execute(ahead)).all()
        abandoned = self.free(rows, now, lease_s)
        if not abandoned:
            return
        columns, table = (*names, *lease), lease[1].table
        async with database.write() as connection:
            for row in abandoned:
                is_it = and_(*(column == value for column, value in zip(columns, row, strict=True)))
                await connection.execute(update(table).where(is_it).values({lease[1].key: now}))

    def is_abandoned(self, name: Hashable, lease: Hashable, lease_s: float) -> bool:
        """Note the lease as it is now; return whether it has been unchanged for its whole length."""
        known = self._seen.get(name)
        if known is None or known[0] != lease:
            self._seen[name] = (lease, self._monotonic())
            return False
        return self._monotonic() - known[1] >= lease_s
