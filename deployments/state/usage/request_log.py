"""Reads the request log, newest first: a page after a cursor, or all pages of a filter."""

import base64
import binascii
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, RowMapping, func, literal, select, union_all

from deployments.state.database.connection import Database
from deployments.state.database.queries import clean_id, id_groups, rows_after
from deployments.state.database.tables.usage import request_log
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.rollups import BATCH_PREFIX, TOO_MANY_REQUESTS

MAX_PAGE = 1_000
NUM_SEARCHED = 20_000
COLUMNS = [column.name for column in request_log.c if column.name not in ("record_id", "operation")]
"""The columns that are fields of a record; the operation is known from the route."""


class UnknownCursor(ValueError):
    """The cursor is not from a page of the request log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilter:
    """The requests with the given values; None accepts all. Times are Unix seconds, `until` is excluded."""

    account: str | None = None
    key_id: str | None = None
    model: str | None = None
    operation: str | None = None
    status: int | None = None
    code: str | None = None
    is_error: bool | None = None
    batch_id: str | None = None
    is_batch: bool | None = None
    request_id: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class RequestPage:
    """A page of the log, newest first; `next_cursor` is None on the last one."""

    records: list[RequestRecord] = field(default_factory=list)
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed requests of one code, status and model; `last_at` is in Unix seconds."""

    code: str | None
    status: int
    model: str | None
    num_requests: int
    last_at: float


class RequestLogReader:
    """The request log of one database. Every method raises DBAPIError if the database is away or fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, where: RequestFilter, limit: int, cursor: str | None = None) -> RequestPage:
        """Return the page after a cursor, at most MAX_PAGE requests.

        Raises:
            UnknownCursor: `cursor` is not from a page.
        """
        limit = min(limit, MAX_PAGE)
        last = None if cursor is None else _parse_cursor(cursor)
        query = rows_after(
            select(request_log).where(*_conditions(where)), (request_log.c.at, request_log.c.record_id), last
        )
        rows = (await self._database.fetch(query.limit(limit + 1))).mappings().all()
        shown = rows[:limit]
        next_cursor = _cursor_of(shown[-1]) if len(rows) > limit else None
        return RequestPage([to_record(row) for row in shown], next_cursor)

    async def find_all(self, account: str, request_ids: Sequence[str]) -> dict[str, RequestRecord]:
        """Return an account's requests over HTTP among `request_ids`, by their ids."""
        found: dict[str, RequestRecord] = {}
        for ids in id_groups(request_ids):
            query = select(request_log).where(request_log.c.account == account, request_log.c.record_id.in_(ids))
            records = [to_record(row) for row in (await self._database.fetch(query)).mappings()]
            found |= {record.request_id: record for record in records}
        return found

    async def num_refused(self, since: float, account: str | None = None) -> dict[str, int]:
        """Return the number of requests refused with 429 since then, of each key that has any."""
        log = request_log.c
        query = (
            select(log.key_id, func.count())
            .where(log.at >= since, log.status == TOO_MANY_REQUESTS, log.key_id.is_not(None))
            .group_by(log.key_id)
        )
        if account is not None:
            query = query.where(log.account == account)
        return {row[0]: row[1] for row in await self._database.fetch(query)}

    async def costs(self, where: RequestFilter) -> dict[str | None, int]:
        """Return the cost of the requests of each model, in 10^-12 of the currency."""
        log = request_log.c
        cost = func.sum(log.input_cost + log.cached_cost + log.output_cost)
        query = select(log.model, cost).where(*_conditions(where)).group_by(log.model)
        return {row[0]: int(row[1]) for row in await self._database.fetch(query)}

    async def last_used(self, by: Literal["account", "key_id"], ids: Sequence[str]) -> dict[str, float]:
        """Return when each account or key was last used, in Unix seconds; those without a request are left out."""
        log = request_log.c
        found: dict[str, float] = {}
        for group in id_groups(ids):
            # The newest of each is one look into an index; a GROUP BY would read all its requests.
            newest = [
                select(literal(one), select(func.max(log.at)).where(log[by] == one).scalar_subquery()) for one in group
            ]
            found |= {row[0]: row[1] for row in await self._database.fetch(union_all(*newest)) if row[1] is not None}
        return found

    async def failures(self, since: float, limit: int) -> list[Failures]:
        """Return the requests that have failed since then by code, status and model, at most `limit`, most first.

        Only the newest NUM_SEARCHED requests are searched, so that it takes a few milliseconds at any load.
        """
        log = request_log.c
        newest = select(log.code, log.status, log.model, log.at).where(log.at >= since)
        one = newest.order_by(log.at.desc()).limit(NUM_SEARCHED).subquery().c
        query = (
            select(one.code, one.status, one.model, func.count(), func.max(one.at))
            .where(one.status >= 400)
            .group_by(one.code, one.status, one.model)
            .order_by(func.count().desc(), one.status, one.code, one.model)
            .limit(limit)
        )
        return [Failures(*row) for row in await self._database.fetch(query)]

    async def every(self, where: RequestFilter) -> AsyncIterator[list[RequestRecord]]:
        """Yield all requests, newest first, in pages of MAX_PAGE."""
        cursor: str | None = None
        while True:
            page = await self.page(where, MAX_PAGE, cursor)
            if page.records:
                yield page.records
            cursor = page.next_cursor
            if cursor is None:
                return


def to_record(row: RowMapping) -> RequestRecord:
    """Return the record of a row."""
    origin = row["record_id"].partition(":")[0]
    batch_id = origin if origin.startswith(BATCH_PREFIX) else None
    return RequestRecord(**{name: row[name] for name in COLUMNS}, batch_id=batch_id)


def _conditions(where: RequestFilter) -> list[ColumnElement[bool]]:
    log = request_log.c
    conditions: list[ColumnElement[bool]] = []
    for column, wanted in (
        (log.account, where.account),
        (log.key_id, where.key_id),
        (log.model, where.model),
        (log.operation, where.operation),
        (log.code, where.code),
        (log.request_id, where.request_id),
    ):
        if wanted is not None:
            conditions.append(column == clean_id(wanted))
    if where.status is not None:
        conditions.append(log.status == where.status)
    if where.is_error is not None:
        conditions.append(log.status >= 400 if where.is_error else log.status < 400)
    if where.is_batch is not None:
        is_line = log.record_id.startswith(BATCH_PREFIX, autoescape=True)
        conditions.append(is_line if where.is_batch else ~is_line)
    if where.batch_id is not None:
        conditions.append(log.record_id.startswith(clean_id(where.batch_id) + ":", autoescape=True))
    if where.since is not None:
        conditions.append(log.at >= where.since)
    if where.until is not None:
        conditions.append(log.at < where.until)
    return conditions


def _cursor_of(row: RowMapping) -> str:
    return base64.urlsafe_b64encode(f"{row['at']!r} {row['record_id']}".encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> dict[str, Any]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, record_id = text.partition(" ")
        return {"at": float(at), "record_id": clean_id(record_id)}
    except (ValueError, binascii.Error):
        raise UnknownCursor("This is no cursor of the request log.") from None
