"""Queues of work in the database, which all accounts share: whose work comes next, and whose lease has ended.

Accounts take turns, however much work one of them has. The account that was served longest ago comes first. Within an
account its lanes take turns, such as its keys or its endpoints, and within a lane the oldest work comes first. A query
reads one row for each lane that has work: an account with a hundred thousand rows takes no longer than one with a few.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, ScalarSelect, Select, and_, delete, func, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.tables.service import work_turns

R = TypeVar("R", bound=Sequence[Any])

_LOOKED_AT = 1000
_KEPT_TURNS = 10_000
"""A turn is deleted after this number of later turns: its account comes first then in any case."""


class Lane(NamedTuple):
    """A lane with work that is ready, and the wanted columns of its first row, by name."""

    account: str
    lane: str
    first: Mapping[str, Any]


@dataclass(frozen=True)
class Turns:
    """The turns at one queue.

    `account` and `lane` are columns of the queue's table, and the oldest row of a lane has the least `age`. The queue
    is the rows for which `waits` holds; they have an index by lane and age.
    """

    queue: str
    account: ColumnElement[str]
    lane: ColumnElement[str]
    age: ColumnElement[float]
    waits: ColumnElement[bool] = field(default_factory=true)

    async def lanes(
        self, connection: AsyncConnection, is_ready: ColumnElement[bool], *columns: ColumnElement[Any]
    ) -> list[Lane]:
        """Return the lanes with rows for which `is_ready` holds, in the order of their turns.

        One lane of each account comes before the second lane of any.
        """
        rows = (await connection.execute(self.query(is_ready, *columns))).mappings().all()
        return [Lane(row["turns_account"], row["lane"], row) for row in rows]

    def query(self, is_ready: ColumnElement[bool], *columns: ColumnElement[Any]) -> Select[Any]:
        """Return the statement of `lanes`, which finds a row for each lane."""
        # Each step finds the next lane in the index, without the rows in between.
        first = select(self.lane).where(self.waits).order_by(self.lane).limit(1)
        found = select(first.scalar_subquery().label("lane")).cte("found", recursive=True)
        after = select(self.lane).where(self.waits, self.lane > found.c.lane).order_by(self.lane).limit(1)
        found = found.union_all(select(_of_each(after, found)).where(found.c.lane.is_not(None)))

        def of_first(column: ColumnElement[Any]) -> ScalarSelect[Any]:
            # Not `==`: PostgreSQL would then use any index on the age alone, and read the rows of other lanes.
            rows = select(column).where(self.waits, is_ready, self.lane.between(found.c.lane, found.c.lane))
            return _of_each(rows.order_by(self.lane, self.age).limit(1), found)

        firsts = [of_first(column).label(column.key) for column in columns]
        ages, accounts = of_first(self.age).label("turns_age"), of_first(self.account).label("turns_account")
        ready = select(found.c.lane, accounts, ages, *firsts).where(found.c.lane.is_not(None)).subquery("ready")
        of_account, of_lane = work_turns.alias("of_account"), work_turns.alias("of_lane")
        same = [
            and_(turn.c.queue == self.queue, turn.c.account == ready.c.turns_account, turn.c.lane == lane)
            for turn, lane in ((of_account, ""), (of_lane, ready.c.lane))
        ]
        by_lane = (func.coalesce(of_lane.c.turn, 0), ready.c.turns_age)
        place = func.row_number().over(partition_by=ready.c.turns_account, order_by=by_lane)
        return (
            select(ready)
            .select_from(ready.outerjoin(of_account, same[0]).outerjoin(of_lane, same[1]))
            .where(ready.c.turns_account.is_not(None))
            .order_by(place, func.coalesce(of_account.c.turn, 0), ready.c.turns_age)
        )

    async def note_served(self, connection: AsyncConnection, database: Database, served: Iterable[Lane]) -> None:
        """Put lanes that are served now, and their accounts, at the end, in the caller's transaction."""
        pairs = {(lane.account, name) for lane in served for name in ("", lane.lane)}
        if not pairs:
            return
        of_queue = work_turns.c.queue == self.queue
        turn = 1 + int(await connection.scalar(select(func.max(work_turns.c.turn)).where(of_queue)) or 0)
        rows = [
            {"queue": self.queue, "account": account, "lane": lane, "turn": turn} for account, lane in sorted(pairs)
        ]
        await connection.execute(database.upsert(work_turns, ["queue", "account", "lane"]), rows)
        await connection.execute(delete(work_turns).where(of_queue, work_turns.c.turn <= turn - _KEPT_TURNS))


@dataclass(frozen=True)
class Places:
    """Places for work that is done side by side: `room` is the number of free places, `held` that of each account.

    An account gets another place only while it holds fewer than are free: the last goes to an account without any.
    """

    held: Mapping[str, int] = field(default_factory=dict)
    room: int = 1

    def admit(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return the lanes that get a place, in their order."""
        held, room, admitted = Counter(self.held), self.room, []
        for lane in lanes:
            if held[lane.account] < room:
                admitted.append(lane)
                held[lane.account] += 1
                room -= 1
        return admitted


ONE = Places()
"""A single place."""


def _of_each(rows: Any, found: Any) -> ScalarSelect[Any]:
    """Return a query of one value as a column for each lane that was found."""
    return rows.correlate(found).scalar_subquery()  # type: ignore[no-any-return]


def may_be_free(lease_until: ColumnElement[float], now: float, lease_s: float) -> ColumnElement[bool]:
    """Return the condition for rows whose lease has ended, or ends later than a lease that is taken now."""
    return or_(lease_until <= now, lease_until > now + lease_s)


class LeaseWatch:
    """What one process has seen of the leases of other processes.

    A lease ends at a time of its holder's wall clock. If that clock was ahead, the lease of a dead holder would last
    too long. So a lease also ends when it has not changed for its whole length by the observer's monotonic clock: a
    living holder renews it more often.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}

    def free(self, rows: Sequence[R], now: float, lease_s: float) -> list[R]:
        """Return the rows whose lease has ended or is abandoned, of all rows that `may_be_free` selects.

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
        """Have the abandoned leases in a queue's table end now.

        `names` are the columns of a row's name, `lease` the columns of its holder and its end.
        """
        ahead = select(*names, *lease).where(*of_queue, lease[1] > now + lease_s).limit(_LOOKED_AT)
        rows = (await database.fetch(ahead)).all()
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
