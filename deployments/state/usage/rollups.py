"""Adds request records to the sums of usage and to the latencies, in the caller's transaction.

Whoever writes rows of the request log calls `add_requests` with them in the same transaction, and with the sign -1 for
rows that it takes out. So the sums are those of the log at every moment, whenever a process dies.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import String, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.operations import MODEL_OPERATIONS
from deployments.state.database.connection import Database
from deployments.state.database.tables import request_log
from deployments.state.database.usage_tables import COUNTS, LATENCY, USAGE
from deployments.state.usage.histogram import bucket_of
from deployments.state.usage.periods import WIDTHS, Width, start_of

BATCH_PREFIX = "batch_"
"""The ids of batches begin so, and with them the record ids of their lines."""
TOO_MANY_REQUESTS = 429
_MAX_OPERATION = 32
_CAUGHT_UP_AT_ONCE = 2_000
_SUMMED = COUNTS[3:]
_USAGE_KEY = ["start", "account", "key_id", "model", "operation", "is_batch", "service_tier"]
_LATENCY_KEY = ["start", "account", "model", "metric", "bucket"]
_BY_PATH = {path: name.value for name, operation in MODEL_OPERATIONS.items() for path in operation.paths}

Change = tuple[Mapping[str, Any], int]
"""A row of the request log, and 1 or -1."""
Rows = dict[Width, list[dict[str, Any]]]
"""What is added to a table of each width, in the order of its key, so that no two writers deadlock."""


def operation_of(route: str) -> str:
    """Return the operation that a route template leads to, else the name of its resource; empty for no route."""
    known = _BY_PATH.get(route)
    if known is not None:
        return known
    parts = route.removeprefix("/v1/").strip("/").split("/") if route.startswith("/") else [""]
    return parts[0][:_MAX_OPERATION]


async def add_requests(connection: AsyncConnection, database: Database, changes: Iterable[Change]) -> None:
    """Add rows of the request log to the sums, each with the sign 1, or -1 where it is taken out."""
    usage, latency = rows_of(changes)
    for width in WIDTHS:
        if usage[width]:
            await connection.execute(database.upsert(USAGE[width], _USAGE_KEY, adding=COUNTS), usage[width])
    for width in WIDTHS:
        if latency[width]:
            await connection.execute(database.upsert(LATENCY[width], _LATENCY_KEY, adding=("count",)), latency[width])


def rows_of(changes: Iterable[Change]) -> tuple[Rows, Rows]:
    """Return what rows of the request log add to the sums of usage and to the latencies. Pure.

    Rows without a key are left out. A failed request that used no tokens counts without its model: the client may have
    invented that name.
    """
    usage: dict[tuple[Any, ...], list[int]] = {}
    latency: dict[tuple[Any, ...], int] = {}
    for row, sign in changes:
        if row["key_id"] is None or row["account"] is None:
            continue
        is_batch = row["record_id"].startswith(BATCH_PREFIX)
        minute = start_of(row["at"], "1m")
        model = _model_of(row)
        key = (row["account"], row["key_id"], model, row["operation"], is_batch, row["service_tier"] or "")
        status = row["status"]
        counts = [1, int(status >= 400), int(status == TOO_MANY_REQUESTS), *(row[name] for name in _SUMMED)]
        total = usage.setdefault((minute, *key), [0] * len(COUNTS))
        for index, count in enumerate(counts):
            total[index] += sign * count
        if model and not is_batch and status < 400:
            _add_latency(latency, minute, row, sign)
    return (
        {width: _widen_usage(usage, width) for width in WIDTHS},
        {width: _widen_latency(latency, width) for width in WIDTHS},
    )


async def catch_up(database: Database) -> int:
    """Add the rows that a process of the version before has written to the sums; return how many.

    Such rows have no operation. It gets none that others are writing just now.
    """
    query = select(request_log).where(request_log.c.operation.is_(None)).limit(_CAUGHT_UP_AT_ONCE)
    async with database.read() as connection:
        if (await connection.execute(query.limit(1))).first() is None:
            return 0
    statement = (
        update(request_log)
        .where(request_log.c.record_id == bindparam("its_id", type_=String))
        .values(operation=bindparam("its_operation", type_=String))
    )
    num_added = 0
    async with database.write() as connection:
        found = (await connection.execute(query.with_for_update(skip_locked=True))).mappings().all()
        rows = [{**row, "operation": operation_of(row["route"])} for row in found]
        if rows:
            named = [{"its_id": row["record_id"], "its_operation": row["operation"]} for row in rows]
            await connection.execute(statement, named)
            await add_requests(connection, database, [(row, 1) for row in rows])
        num_added += len(rows)
    return num_added


def _model_of(row: Mapping[str, Any]) -> str:
    has_run = row["status"] < 400 or row["prompt_tokens"] or row["completion_tokens"]
    return (row["model"] or "") if has_run else ""


def _add_latency(latency: dict[tuple[Any, ...], int], minute: int, row: Mapping[str, Any], sign: int) -> None:
    metrics = [("total", row["total_s"])]
    if row["stream"] and row["ttft_s"] is not None:
        metrics.append(("ttft", row["ttft_s"]))
    for metric, seconds in metrics:
        if not math.isfinite(seconds):
            continue
        for account in (row["account"], ""):
            key = (minute, account, row["model"], metric, bucket_of(seconds))
            latency[key] = latency.get(key, 0) + sign


def _widen_usage(minutes: Mapping[tuple[Any, ...], list[int]], width: Width) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], list[int]] = {}
    for key, counts in minutes.items():
        total = sums.setdefault((start_of(key[0], width), *key[1:]), [0] * len(COUNTS))
        for index, count in enumerate(counts):
            total[index] += count
    return [
        dict(zip(_USAGE_KEY, key, strict=True)) | dict(zip(COUNTS, sums[key], strict=True))
        for key in sorted(sums)
        if any(sums[key])
    ]


def _widen_latency(minutes: Mapping[tuple[Any, ...], int], width: Width) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], int] = {}
    for key, count in minutes.items():
        wider = (start_of(key[0], width), *key[1:])
        sums[wider] = sums.get(wider, 0) + count
    return [dict(zip(_LATENCY_KEY, key, strict=True)) | {"count": sums[key]} for key in sorted(sums) if sums[key]]
