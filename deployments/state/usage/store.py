"""The request log, and the usage of keys by day and model, in the database. Metadata only, no content.

The gatekeeper writes the requests over HTTP, many at once, each under its request id: what arrives twice is counted
once, and so is a request that was tried twice. `batches.work` writes the lines of batches beside their outcomes, under
ids that name their batch: `line_rows` makes their rows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import RowMapping, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.clock import uptime
from deployments.state.database.connection import Database
from deployments.state.database.ids import id_groups
from deployments.state.database.tables import request_log, usage
from deployments.state.usage.record import CLIENT_CLOSED_REQUEST, RequestRecord

MAX_LISTED = 1_000
_SECONDS_PER_DAY = 86_400
_DROPPED_AT_ONCE = 5_000  # A statement must be much faster than the database's timeout.
_TRIM_SPEED = 24  # After a month without a service, or with half the days to keep, trimming takes a day.
_USAGE_KEY = ["key_id", "day", "model"]
_COUNTS = ("num_requests", "num_errors", "prompt_tokens", "completion_tokens", "cached_tokens", "discounted_tokens")
_COLUMNS = [column.name for column in request_log.c if column.name != "record_id"]
_MAX_ID = 64
_TEXT_COLUMNS = {column.name: column.type.length for column in request_log.c if hasattr(column.type, "length")}


@dataclass(frozen=True)
class UsageRow:
    """The usage of one model by one key on one day (UTC); `model` is empty for requests that named no known model."""

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


class UsageStore:
    """The request log and the usage rows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, records: Iterable[RequestRecord]) -> int:
        """Write the records that are not there yet, and add them to the usage; return how many.

        Of several tries of one request, one counts: the one that was answered, the later of two that were.
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
            usage_of_all = [*_usage_of(fresh.values()), *map(_negated, _usage_of(replaced))]
            await add_usage(connection, self._database, usage_of_all)
        return len(fresh)

    async def by_day(
        self, *, key_id: str | None = None, account: str | None = None, since: date | None = None
    ) -> list[UsageRow]:
        """Return usage per key, day and model, newest day first."""
        query = select(usage).order_by(usage.c.day.desc(), usage.c.key_id, usage.c.model)
        if key_id is not None:
            query = query.where(usage.c.key_id == key_id)
        if account is not None:
            query = query.where(usage.c.account == account)
        if since is not None:
            query = query.where(usage.c.day >= since)
        async with self._database.read() as connection:
            return [UsageRow(**row) for row in (await connection.execute(query)).mappings()]

    async def last_requests(self, key_id: str, limit: int = 100, before: float | None = None) -> list[RequestRecord]:
        """Return the key's latest records, newest first; `before` (Unix seconds) pages back."""
        query = select(request_log).where(request_log.c.key_id == key_id)
        if before is not None:
            query = query.where(request_log.c.at < before)
        query = query.order_by(request_log.c.at.desc(), request_log.c.record_id).limit(min(limit, MAX_LISTED))
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [_to_record(row) for row in rows]

    async def count(self) -> int:
        """Return the number of records in the request log."""
        async with self._database.read() as connection:
            return int(await connection.scalar(select(func.count()).select_from(request_log)) or 0)

    async def drop_log_before(self, oldest: float, at_most_s: float) -> None:
        """Delete request records from before `oldest` (Unix seconds), but no more than `at_most_s` seconds of the log.

        These seconds begin with the oldest record. The usage by day stays.
        """
        async with self._database.read() as connection:
            first = await connection.scalar(select(func.min(request_log.c.at)))
        if first is None:
            return
        is_old = request_log.c.at < min(oldest, first + at_most_s)
        some = select(request_log.c.record_id).where(is_old).limit(_DROPPED_AT_ONCE)
        num_dropped = _DROPPED_AT_ONCE
        while num_dropped == _DROPPED_AT_ONCE:
            async with self._database.write() as connection:
                dropped = await connection.execute(delete(request_log).where(request_log.c.record_id.in_(some)))
                num_dropped = dropped.rowcount


class LogTrim:
    """Deletes request records that are older than the configured number of days.

    Their age is by the wall clock, without its forward jumps since this object was made. In case the clock was ahead
    before, an hour of the machine's uptime deletes at most a day of the log: enough is left once the clock is right.
    """

    def __init__(
        self,
        store: UsageStore,
        days: int,
        past: Callable[[], float],
        monotonic: Callable[[], float] = uptime,
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
        await self._store.drop_log_before(self._past() - self._kept_s, (now - self._trimmed_at) * _TRIM_SPEED)
        self._trimmed_at = now


def line_rows(batch_id: str, records: Iterable[tuple[int, RequestRecord]]) -> list[dict[str, Any]]:
    """Return the request log's rows for lines of a batch, each given with its number."""
    return [_to_row(f"{batch_id}:{line}", record) for line, record in records]


def _to_record(row: RowMapping) -> RequestRecord:
    maker = row["record_id"].partition(":")[0]
    batch_id = maker if maker.startswith("batch_") else None
    return RequestRecord(**{name: row[name] for name in _COLUMNS}, batch_id=batch_id)


def _to_row(record_id: str, record: RequestRecord) -> dict[str, Any]:
    """Return the row of a record, its texts cut to their columns: some come from clients, and PostgreSQL checks."""
    row: dict[str, Any] = {"record_id": record_id}
    for name in _COLUMNS:
        value = getattr(record, name)
        if isinstance(value, str):
            value = value.replace("\0", "").encode("utf-8", "replace").decode()[: _TEXT_COLUMNS[name]]
        row[name] = value
    return row


async def add_usage(connection: AsyncConnection, database: Database, requests: Iterable[UsageRow]) -> None:
    """Add requests, each a row of its own, to the usage of their keys by day and model, in the caller's transaction.

    A failed request that used no tokens counts without its model: the client may have invented that name.
    """
    totals: dict[tuple[str, date, str], dict[str, Any]] = {}
    for one in requests:
        has_run = not one.num_errors or one.prompt_tokens or one.completion_tokens
        key = (one.key_id, one.day, one.model if has_run else "")
        total = totals.get(key)
        if total is None:
            total = totals[key] = dict(zip(_USAGE_KEY, key, strict=True)) | {"account": one.account}
            total |= dict.fromkeys(_COUNTS, 0)
        for name in _COUNTS:
            total[name] += getattr(one, name)
    if totals:
        await connection.execute(database.upsert(usage, _USAGE_KEY, adding=_COUNTS), list(totals.values()))


def day_of(at: float) -> date:
    """Return the day (UTC) on which a request counts that ended `at` (Unix seconds)."""
    return datetime.fromtimestamp(at, UTC).date()


async def _take_replaced(connection: AsyncConnection, fresh: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Delete the rows that fresh ones take the place of, and return them; take out of `fresh` what is known better."""
    replaced = []
    for ids in id_groups(list(fresh)):
        query = select(request_log).where(request_log.c.record_id.in_(ids))
        for known in [dict(row) for row in (await connection.execute(query)).mappings()]:
            if _counts_before(fresh[known["record_id"]], known):
                replaced.append(known)
            else:
                del fresh[known["record_id"]]
    for ids in id_groups([row["record_id"] for row in replaced]):
        await connection.execute(delete(request_log).where(request_log.c.record_id.in_(ids)))
    return replaced


def _counts_before(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether, of two tries of one request, `row` is the one that counts.

    An ingress from which the front was cut off takes that for the client's departure, so such a try counts least.
    """
    return (row["status"] != CLIENT_CLOSED_REQUEST, row["at"]) > (other["status"] != CLIENT_CLOSED_REQUEST, other["at"])


def _negated(row: UsageRow) -> UsageRow:
    return replace(row, **{name: -getattr(row, name) for name in _COUNTS})


def _usage_of(rows: Iterable[dict[str, Any]]) -> Iterator[UsageRow]:
    """Yield the usage of each request that was made with a key."""
    for row in rows:
        if row["key_id"] is not None and row["account"] is not None:
            tokens = [row[name] for name in _COUNTS[2:]]
            key = (row["key_id"], row["account"], day_of(row["at"]), row["model"] or "")
            yield UsageRow(*key, 1, int(row["status"] >= 400), *tokens)
