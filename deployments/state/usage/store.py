"""Writes the request log and the sums of usage, in one transaction. Metadata only, no content.

The gatekeeper writes the requests over HTTP, many at once, each under its request id: a record that arrives twice, or a
request that was tried twice, counts once. `batches.work` writes the lines of batches with their outcomes, through
`add_lines`, under ids with their batch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.clock import uptime
from deployments.state.database.connection import Database
from deployments.state.database.queries import id_groups
from deployments.state.database.tables.usage import LATENCY, USAGE, request_log
from deployments.state.usage.reading import UsageFilter, UsageReader
from deployments.state.usage.record import CLIENT_CLOSED_REQUEST, RequestRecord
from deployments.state.usage.request_log import COLUMNS, RequestFilter, RequestLogReader
from deployments.state.usage.rollups import KEPT_S, WIDTH_S, add_requests, operation_of

_SECONDS_PER_DAY = 86_400
_DROPPED_AT_ONCE = 5_000  # A statement must be much faster than the database's timeout.
_TRIM_SPEED = 24  # After a month without a service, or with half the days to keep, trimming takes a day.
_COUNTS = ("num_requests", "num_errors", "prompt_tokens", "completion_tokens", "cached_tokens", "discounted_tokens")
_FOR_EVER = 1e11
_MAX_ID = 64
_TEXT_COLUMNS = {column.name: column.type.length for column in request_log.c if hasattr(column.type, "length")}


@dataclass(frozen=True)
class UsageRow:
    """The usage of one model by one key on one day (UTC); `model` is empty for requests without a known model.

    `cost` is in 10^-12 of the currency.
    """

    key_id: str
    account: str
    day: date
    model: str
    num_requests: int
    num_errors: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    discounted_tokens: int = 0
    cost: int = 0


class UsageStore:
    """The request log and the usage rows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, records: Iterable[RequestRecord]) -> int:
        """Write the records that are new, and add them to the usage; return their number.

        One of several tries of a request counts: the answered try, or the later of two.
        """
        fresh: dict[str, dict[str, Any]] = {}
        for record in records:
            row = _to_row(record.request_id[:_MAX_ID], record)
            other = fresh.get(row["record_id"])
            if other is None or _counts_before(row, other):
                fresh[row["record_id"]] = row
        async with self._database.write() as connection:
            replaced = await _take_replaced(connection, fresh)
            if fresh:
                await connection.execute(request_log.insert(), list(fresh.values()))
            changes = [(row, 1) for row in fresh.values()] + [(row, -1) for row in replaced]
            await add_requests(connection, self._database, changes)
        return len(fresh)

    async def by_day(
        self, *, key_id: str | None = None, account: str | None = None, since: date | None = None
    ) -> list[UsageRow]:
        """Return usage per key, day and model, newest day first."""
        begin = 0.0 if since is None else datetime(since.year, since.month, since.day, tzinfo=UTC).timestamp()
        where = UsageFilter(
            key_ids=None if key_id is None else (key_id,), accounts=None if account is None else (account,)
        )
        sums = await UsageReader(self._database).buckets(
            "1d", begin, _FOR_EVER, group_by=("account", "key_id", "model"), where=where
        )
        sums.sort(key=lambda one: (-one.start, one.key_id or "", one.model or ""))
        return [
            UsageRow(
                one.key_id or "",
                one.account or "",
                day_of(one.start),
                one.model or "",
                **{name: getattr(one, name) for name in _COUNTS},
                cost=one.cost,
            )
            for one in sums
        ]

    async def last_requests(self, key_id: str, limit: int = 100, before: float | None = None) -> list[RequestRecord]:
        """Return the key's latest records, newest first; `before` (Unix seconds) pages back."""
        where = RequestFilter(key_id=key_id, until=before)
        return (await RequestLogReader(self._database).page(where, limit)).records

    async def count(self) -> int:
        """Return the number of records in the request log."""
        return int((await self._database.fetch(select(func.count()).select_from(request_log))).scalar() or 0)

    async def drop_log_before(self, oldest: float, at_most_s: float) -> None:
        """Delete request records from before `oldest` (Unix seconds), but no more than `at_most_s` seconds of the log.

        These seconds begin with the oldest record. The usage by day stays.
        """
        first = (await self._database.fetch(select(func.min(request_log.c.at)))).scalar()
        if first is None:
            return
        await self._drop(request_log, request_log.c.record_id, request_log.c.at < min(oldest, first + at_most_s))

    async def drop_sums_before(self, now: float, at_most_s: float) -> None:
        """Delete sums that are no longer kept at `now`, but no more than `at_most_s` seconds of each width."""
        for tables in (USAGE, LATENCY):
            for width, table in tables.items():
                kept_s = KEPT_S[width]
                if kept_s is None:
                    continue
                first = (await self._database.fetch(select(func.min(table.c.start)))).scalar()
                if first is not None:
                    oldest = min(now - kept_s, first + max(at_most_s, WIDTH_S[width]))
                    await self._drop(table, table.c.start, table.c.start < oldest)

    async def _drop(self, table: Table, key: Column[Any], is_old: ColumnElement[bool]) -> None:
        """Delete rows in portions, found by a column of their key."""
        some = select(key).where(is_old).limit(_DROPPED_AT_ONCE)
        num_dropped = _DROPPED_AT_ONCE
        while num_dropped >= _DROPPED_AT_ONCE:
            async with self._database.write() as connection:
                dropped = await connection.execute(delete(table).where(key.in_(some)))
                num_dropped = dropped.rowcount


class LogTrim:
    """Deletes request records that are older than the configured number of days, and sums of usage that are too old.

    Their age is by the wall clock, without its forward jumps since this object was created. In case the clock was ahead
    before, an hour of the machine's uptime deletes at most a day of the log, so that an operator can correct it in
    time.
    """

    def __init__(
        self, store: UsageStore, days: int, past: Callable[[], float], monotonic: Callable[[], float] = uptime
    ) -> None:
        """Take the number of days to keep; `past` is a `PastClock`."""
        self._store = store
        self._kept_s = days * _SECONDS_PER_DAY
        self._past = past
        self._monotonic = monotonic
        self._trimmed_at = monotonic()

    async def trim(self) -> None:
        """Delete the records that have become too old since the last call."""
        now = self._monotonic()
        at_most_s = (now - self._trimmed_at) * _TRIM_SPEED
        await self._store.drop_log_before(self._past() - self._kept_s, at_most_s)
        await self._store.drop_sums_before(self._past(), at_most_s)
        self._trimmed_at = now


async def add_lines(
    connection: AsyncConnection, database: Database, batch_id: str, records: Iterable[tuple[int, RequestRecord]]
) -> None:
    """Add lines of a batch, given by number, to the log and to the usage, in the caller's transaction."""
    rows = [_to_row(f"{batch_id}:{line}", record) for line, record in records]
    if rows:
        await connection.execute(request_log.insert(), rows)
        await add_requests(connection, database, [(row, 1) for row in rows])


def _to_row(record_id: str, record: RequestRecord) -> dict[str, Any]:
    """Return the row of a record, with texts cut to their columns: clients send some, and PostgreSQL checks them."""
    row: dict[str, Any] = {"record_id": record_id, "operation": operation_of(record.route)}
    for name in COLUMNS:
        value = getattr(record, name)
        if isinstance(value, str):
            value = value.replace("\0", "").encode("utf-8", "replace").decode()[: _TEXT_COLUMNS[name]]
        row[name] = value
    return row


def day_of(at: float) -> date:
    """Return the day (UTC) of a time in Unix seconds."""
    return datetime.fromtimestamp(at, UTC).date()


async def _take_replaced(connection: AsyncConnection, fresh: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Delete and return the rows that fresh rows replace; remove the other rows of known requests from `fresh`."""
    replaced = []
    for ids in id_groups(list(fresh)):
        query = select(request_log).where(request_log.c.record_id.in_(ids)).with_for_update()
        for known in [dict(row) for row in (await connection.execute(query)).mappings()]:
            if _counts_before(fresh[known["record_id"]], known):
                replaced.append(known)
            else:
                del fresh[known["record_id"]]
    for ids in id_groups([row["record_id"] for row in replaced]):
        await connection.execute(delete(request_log).where(request_log.c.record_id.in_(ids)))
    return replaced


def _counts_before(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether `row` counts, and not `other`, another try of the same request.

    An ingress replica that loses the front records that the client has left, so such a try counts least.
    """
    return (row["status"] != CLIENT_CLOSED_REQUEST, row["at"]) > (other["status"] != CLIENT_CLOSED_REQUEST, other["at"])
