"""Reads usage: sums by period and group, totals, cost, and percentiles of latencies. Never the request log itself.

Routes, the console and the command line use it, so that all show the same figures.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from sqlalchemy import BigInteger, ColumnElement, String, Table, and_, cast, func, literal_column, null, select

from deployments.state.database.connection import Database
from deployments.state.database.tables.usage import COUNTS, LATENCY, USAGE, Width, vector_store_bytes
from deployments.state.usage.rollups import percentiles, start_of

Group = Literal["account", "key_id", "model", "operation", "is_batch", "service_tier"]
GROUPS: tuple[Group, ...] = get_args(Group)
Metric = Literal["ttft", "total"]
SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """The requests with any of the given values; None accepts all.

    The model is empty for requests without a known model and for those that did not run, the service tier for the
    default.
    """

    accounts: tuple[str, ...] | None = None
    key_ids: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    operations: tuple[str, ...] | None = None
    other_operations: tuple[str, ...] = ()
    """Operations that are not counted."""
    service_tiers: tuple[str, ...] | None = None
    is_batch: bool | None = None
    has_run: bool = False
    """Only requests that ran on a model."""


class UsageSum(NamedTuple):
    """The sums of one group in one period, which begins at `start` (Unix seconds).

    Its fields are in the order of GROUPS and COUNTS; groups that were not asked for are None, and sums are 0.
    `num_rate_limited` of the `num_errors` were refused with 429. `cached_tokens` are part of `prompt_tokens`. Costs are
    in 10^-12 of the currency.
    """

    start: int
    account: str | None = None
    key_id: str | None = None
    model: str | None = None
    operation: str | None = None
    is_batch: bool | None = None
    service_tier: str | None = None
    num_requests: int = 0
    num_errors: int = 0
    num_rate_limited: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    discounted_tokens: int = 0
    file_search_calls: int = 0
    web_search_calls: int = 0
    code_sessions: int = 0
    input_cost: int = 0
    cached_cost: int = 0
    output_cost: int = 0

    @property
    def cost(self) -> int:
        """The whole cost, in 10^-12 of the currency."""
        return self.input_cost + self.cached_cost + self.output_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latencies of the answered requests of one model, in one period that begins at `start` (Unix seconds).

    `metric` is `ttft`, the time to a stream's first token, or `total`. Percentiles are in seconds, to within 2.5 %.
    Lines of batches do not count. `model` is None for all models together.
    """

    start: int
    model: str | None
    metric: Metric
    num_requests: int
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """The size of vector stores in a period that begins at `start` (Unix seconds); `account` is None for all."""

    start: int
    account: str | None
    num_bytes: int


class UsageReader:
    """The usage of one database. Times are Unix seconds; a period counts whole if any of it lies in the range.

    Every method raises DBAPIError if the database is away or fails.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def buckets(
        self,
        width: Width,
        start: float,
        end: float,
        *,
        group_by: Iterable[Group] = (),
        where: UsageFilter = UsageFilter(),
        counts: Container[str] = COUNTS,
    ) -> list[UsageSum]:
        """Return the sums by period and group, in that order, from `start` to `end`; a period may have none.

        Minutes reach back two days, hours 90 days. Only `counts` are added up, since each takes time.
        """
        table, grouped = USAGE[width], set(group_by)
        # A key has one account: with it the groups are in the order of the table's key, and SQLite sorts no rows.
        in_order = grouped | {"account"} if "key_id" in grouped else grouped
        groups = [table.c[name] for name in GROUPS if name in in_order]
        query = (
            select(table.c.start, *_columns(table, grouped, counts))
            .where(*_conditions(table, width, start, end, where))
            .group_by(table.c.start, *groups)
            .order_by(table.c.start, *groups)
        )
        return await self._usage(query)

    async def totals(
        self,
        width: Width,
        start: float,
        end: float,
        *,
        group_by: Iterable[Group] = (),
        where: UsageFilter = UsageFilter(),
    ) -> list[UsageSum]:
        """Return the sums of all periods together by group; without groups one sum, even without requests.

        Their `start` is the first period's. The range is rounded to `width`.
        """
        table, grouped = USAGE[width], set(group_by)
        groups = [table.c[name] for name in GROUPS if name in grouped]
        first: ColumnElement[int] = literal_column(str(start_of(start, width)))
        query = select(first, *_columns(table, grouped, COUNTS)).where(*_conditions(table, width, start, end, where))
        if groups:
            query = query.group_by(*groups).order_by(*groups)
        return await self._usage(query)

    async def latency(
        self,
        width: Width,
        start: float,
        end: float,
        *,
        accounts: tuple[str, ...] | None = None,
        models: tuple[str, ...] | None = None,
        by_model: bool = True,
        as_one: bool = False,
    ) -> list[Latency]:
        """Return percentiles of `accounts` together, or of all, by period, model and metric, in that order.

        `as_one` takes all periods as one.
        """
        table = LATENCY[width]
        first = start_of(start, width)
        columns = [*(() if as_one else (table.c.start,)), *((table.c.model,) if by_model else ()), table.c.metric]
        conditions = [table.c.start >= first, table.c.start < end]
        conditions.append(table.c.account.in_(("",) if accounts is None else accounts))
        if models is not None:
            conditions.append(table.c.model.in_(models))
        count = func.sum(table.c["count"]).label("num")
        sums = select(*columns, table.c.bucket, count).where(*conditions).group_by(*columns, table.c.bucket).subquery()
        # All counts of a group in one text: a row for each takes ten times as long to read.
        groups = [sums.c[column.name] for column in columns]
        text = cast(sums.c.bucket, String) + ":" + cast(sums.c.num, String)
        query = select(*groups, func.aggregate_strings(text, ",").label("counts")).group_by(*groups).order_by(*groups)
        rows = (await self._database.fetch(query)).mappings().all()
        return [
            latency
            for row in rows
            for latency in _latency_of(
                (first if as_one else row["start"], row["model"] if by_model else None, row["metric"]),
                dict(_count_of(one) for one in row["counts"].split(",")),
            )
        ]

    async def vector_store_bytes(
        self,
        width: Width,
        start: float,
        end: float,
        *,
        accounts: tuple[str, ...] | None = None,
        by_account: bool = False,
    ) -> list[StoredBytes]:
        """Return the size of vector stores by period (and account); by hour if minutes are asked for."""
        table = vector_store_bytes
        stored: Width = "1d" if width == "1d" else "1h"
        groups = [table.c.account] if by_account else []
        conditions = [table.c.width == stored, table.c.start >= start_of(start, stored), table.c.start < end]
        if accounts is not None:
            conditions.append(table.c.account.in_(accounts))
        query = (
            select(table.c.start, *groups, func.sum(table.c.num_bytes).label("num_bytes"))
            .where(*conditions)
            .group_by(table.c.start, *groups)
            .order_by(table.c.start, *groups)
        )
        rows = (await self._database.fetch(query)).mappings().all()
        return [StoredBytes(row["start"], row.get("account"), int(row["num_bytes"])) for row in rows]

    async def _usage(self, query: Any) -> list[UsageSum]:
        return [*map(UsageSum._make, (await self._database.fetch(query)).all())]


def _columns(table: Table, groups: Container[str], counts: Container[str]) -> list[ColumnElement[Any]]:
    """Return the columns of a UsageSum after its start."""
    # PostgreSQL sums integers as decimals, which are slow to read: hence the cast.
    return [
        *(table.c[name] if name in groups else null().label(name) for name in GROUPS),
        *(
            cast(func.coalesce(func.sum(table.c[name]), 0), BigInteger).label(name)
            if name in counts
            else literal_column("0").label(name)
            for name in COUNTS
        ),
    ]


def _conditions(table: Table, width: Width, start: float, end: float, where: UsageFilter) -> list[ColumnElement[bool]]:
    conditions = [and_(table.c.start >= start_of(start, width), table.c.start < end)]
    for name, wanted in (
        ("account", where.accounts),
        ("key_id", where.key_ids),
        ("model", where.models),
        ("operation", where.operations),
        ("service_tier", where.service_tiers),
    ):
        if wanted is not None:
            conditions.append(table.c[name].in_(wanted))
    if where.other_operations:
        conditions.append(table.c.operation.not_in(where.other_operations))
    if where.is_batch is not None:
        conditions.append(table.c.is_batch.is_(where.is_batch))
    if where.has_run:
        conditions.append(table.c.model != "")
    return conditions


def _count_of(text: str) -> tuple[int, int]:
    bucket, _, count = text.partition(":")
    return int(bucket), int(count)


def _latency_of(key: tuple[int, str | None, Metric], counts: Mapping[int, int]) -> Iterable[Latency]:
    start, model, metric = key
    p50, p95, p99 = percentiles(counts, SHARES)
    if p50 is not None and p95 is not None and p99 is not None:
        yield Latency(
            start=start, model=model, metric=metric, num_requests=sum(counts.values()), p50_s=p50, p95_s=p95, p99_s=p99
        )
