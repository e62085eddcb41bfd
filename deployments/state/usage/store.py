"""The request log and the usage of keys by day and model, in the database. Metadata only: there is no content in it.

The gatekeeper writes the requests that came over HTTP, many at once; a record is identified by where it was made, so
that what arrives twice is counted once. Lines of batches are written where their outcomes are (`batches.work`), under
ids that name their batch: `line_rows` makes them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from sqlalchemy import RowMapping, delete, func, select

from deployments.state.database.clock import uptime
from deployments.state.database.connection import Database
from deployments.state.database.tables import request_log, usage
from deployments.state.usage.record import RequestRecord

MAX_LISTED = 1_000
_SECONDS_PER_DAY = 86_400
_CHUNK = 400
_DROPPED_AT_ONCE = 5_000  # No statement may take as long as the database is given to answer.
_TRIM_SPEED = 24  # A service that was away for a month, or whose operator halves what is kept, has trimmed it in a day.
_COLUMNS = [column.name for column in request_log.c if column.name != "record_id"]
_TEXT_COLUMNS = {column.name: column.type.length for column in request_log.c if hasattr(column.type, "length")}


class Numbered(NamedTuple):
    """A record and the id that nobody else's record has."""

    record_id: str
    record: RequestRecord


@dataclass(frozen=True)
class UsageRow:
    """What one key had one model do on one day (UTC); `model` is empty for requests that named none that exists."""

    key_id: str
    account: str
    day: date
    model: str
    num_requests: int
    num_errors: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class UsageStore:
    """The request log and the usage rows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, records: Iterable[Numbered]) -> int:
        """Write the records that are not there yet, and count them; return how many those were."""
        fresh: dict[str, dict[str, Any]] = {}
        for record_id, record in records:
            fresh[record_id] = _to_row(record_id, record)
        async with self._database.write() as connection:
            ids = list(fresh)
            for start in range(0, len(ids), _CHUNK):
                chunk = ids[start : start + _CHUNK]
                query = select(request_log.c.record_id).where(request_log.c.record_id.in_(chunk))
                for known in (await connection.scalars(query)).all():
                    del fresh[known]
            if fresh:
                await connection.execute(request_log.insert(), list(fresh.values()))
            totals = _add_up(fresh.values())
            if totals:
                key = ["key_id", "day", "model"]
                counts = [c.name for c in usage.c if c.name not in (*key, "account")]
                await connection.execute(self._database.upsert(usage, key, adding=counts), totals)
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
        """Return how many records the request log holds."""
        async with self._database.read() as connection:
            return int(await connection.scalar(select(func.count()).select_from(request_log)) or 0)

    async def drop_log_before(self, oldest: float, at_most_s: float) -> None:
        """Delete request records from before `oldest` (Unix seconds), but no more than the first `at_most_s` seconds.

        Those begin with the oldest record that there is. The usage by day stays.
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
    """Deletes request records that are older than the operator wants them to be.

    Their age goes by the wall clock, without its jumps ahead since this was made. Where the clock was ahead before
    that, no hour, as the machine measures it, takes more than a day of the log: enough of it is left when the clock is
    put right.
    """

    def __init__(
        self,
        store: UsageStore,
        days: int,
        past: Callable[[], float],
        monotonic: Callable[[], float] = uptime,
    ) -> None:
        """Take how many days are kept; `past` is a `PastClock`."""
        self._store = store
        self._kept_s = days * _SECONDS_PER_DAY
        self._past = past
        self._monotonic = monotonic
        self._trimmed_at = monotonic()

    async def trim(self) -> None:
        """Delete what has become too old since the last time."""
        now = self._monotonic()
        await self._store.drop_log_before(self._past() - self._kept_s, (now - self._trimmed_at) * _TRIM_SPEED)
        self._trimmed_at = now


def line_rows(batch_id: str, records: Iterable[tuple[int, RequestRecord]]) -> list[dict[str, Any]]:
    """Return lines of a batch, each with its number, as rows of the request log."""
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


def _add_up(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one usage row per key, day and model.

    A failed request that used nothing counts without its model: that name may be whatever a client thought up.
    """
    totals: dict[tuple[str, date, str], dict[str, Any]] = {}
    for row in rows:
        if row["key_id"] is None or row["account"] is None:
            continue
        is_error = row["status"] >= 400
        has_run = not is_error or row["prompt_tokens"] or row["completion_tokens"]
        day = datetime.fromtimestamp(row["at"], UTC).date()
        place = (row["key_id"], day, (row["model"] or "") if has_run else "")
        total = totals.get(place)
        if total is None:
            total = totals[place] = {"key_id": place[0], "day": day, "model": place[2], "account": row["account"]}
            total.update(num_requests=0, num_errors=0, prompt_tokens=0, completion_tokens=0, cached_tokens=0)
        total["num_requests"] += 1
        total["num_errors"] += is_error
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            total[name] += row[name]
    return list(totals.values())
