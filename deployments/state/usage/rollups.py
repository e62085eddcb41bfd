"""The sums of usage and latencies by minute, hour and day (UTC), and the size of vector stores by hour and day.

A row of the request log is added to the sums in the transaction that writes it, and subtracted, with the sign -1, in
the transaction that deletes it. So the sums always match the log, even if a process dies.

Latencies are counts in fixed buckets, each 5 % wide, which add up over periods, models and accounts. Bucket 0 ends at
0.1 ms, bucket n at 0.1 ms times 1.05^n. A percentile is known to within 2.5 %.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.operations import MODEL_OPERATIONS
from deployments.state.database.connection import Database
from deployments.state.database.tables.content import vector_store_files
from deployments.state.database.tables.usage import COUNTS, LATENCY, USAGE, Width, vector_store_bytes

WIDTHS: tuple[Width, ...] = get_args(Width)
WIDTH_S: dict[Width, int] = {"1m": 60, "1h": 3_600, "1d": 86_400}
KEPT_S: dict[Width, int | None] = {"1m": 2 * 86_400, "1h": 90 * 86_400, "1d": None}
"""How long the sums of a period are kept; None is for ever."""

BATCH_PREFIX = "batch_"
"""The beginning of the ids of batches, and so of the record ids of their lines."""
TOO_MANY_REQUESTS = 429
LEAST_S = 1e-4
GROWTH = 1.05
LAST = 400
"""The bucket of all that took longer than 8 hours."""
_LOG_GROWTH = math.log(GROWTH)
_MAX_OPERATION = 32
_SUMMED = COUNTS[3:]
_USAGE_KEY = ["start", "account", "key_id", "model", "operation", "is_batch", "service_tier"]
_LATENCY_KEY = ["start", "account", "model", "metric", "bucket"]
_STORE_BYTES_KEY = ["width", "start", "account"]
_BY_PATH = {path: name.value for name, operation in MODEL_OPERATIONS.items() for path in operation.paths}

Change = tuple[Mapping[str, Any], int]
"""A row of the request log, and 1 or -1."""
Rows = dict[Width, list[dict[str, Any]]]
"""The rows to add to the table of each width, in the order of its key, so that no two writers deadlock."""


def start_of(at: float, width: Width) -> int:
    """Return the first second of the period that a time lies in, both in Unix seconds."""
    seconds = WIDTH_S[width]
    return int(at // seconds) * seconds


def operation_of(route: str) -> str:
    """Return the operation of a route template, else the name of its resource; empty for no route."""
    known = _BY_PATH.get(route)
    if known is not None:
        return known
    parts = route.removeprefix("/v1/").strip("/").split("/") if route.startswith("/") else [""]
    return parts[0][:_MAX_OPERATION]


async def add_requests(connection: AsyncConnection, database: Database, changes: Iterable[Change]) -> None:
    """Add rows of the request log to the sums, or subtract them with the sign -1."""
    usage, latency = rows_of(changes)
    for width in WIDTHS:
        if usage[width]:
            await connection.execute(database.upsert(USAGE[width], _USAGE_KEY, adding=COUNTS), usage[width])
    for width in WIDTHS:
        if latency[width]:
            await connection.execute(database.upsert(LATENCY[width], _LATENCY_KEY, adding=("count",)), latency[width])


async def note_store_bytes(database: Database, clock: Callable[[], float]) -> None:
    """Write the size of vector stores now; the last size in a period is the one that is shown for it."""
    now = clock()
    files, noted = vector_store_files, vector_store_bytes
    held = select(files.c.account, func.sum(files.c.usage_bytes)).group_by(files.c.account)
    async with database.write() as connection:
        num_bytes = {account: int(total) for account, total in await connection.execute(held)}
        rows = []
        for width in ("1h", "1d"):
            start = start_of(now, width)
            earlier = select(noted.c.account).where(noted.c.width == width, noted.c.start == start)
            accounts = {*(await connection.scalars(earlier)), *(name for name, total in num_bytes.items() if total)}
            rows += [
                {"width": width, "start": start, "account": account, "num_bytes": num_bytes.get(account, 0)}
                for account in sorted(accounts)
            ]
        if rows:
            await connection.execute(database.upsert(noted, _STORE_BYTES_KEY), rows)


def rows_of(changes: Iterable[Change]) -> tuple[Rows, Rows]:
    """Return the rows to add to the sums of usage and to the latencies for rows of the request log. Pure.

    Rows without a key are left out. A failed request without tokens counts without its model: the client may have
    invented the name.
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


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency."""
    if seconds <= LEAST_S:
        return 0
    return min(LAST, math.ceil(math.log(seconds / LEAST_S) / _LOG_GROWTH))


def seconds_of(bucket: int) -> float:
    """Return the middle of a bucket in seconds, within 2.5 % of every latency in it."""
    return LEAST_S if bucket == 0 else float(LEAST_S * GROWTH ** (bucket - 0.5))


def percentiles(counts: Mapping[int, int], shares: Iterable[float]) -> list[float | None]:
    """Return the latency in seconds below which each share (0 to 1) of the counts lies; None without counts."""
    total = sum(counts.values())
    if total <= 0:
        return [None for _ in shares]
    return [_percentile(counts, total, share) for share in shares]


def _percentile(counts: Mapping[int, int], total: int, share: float) -> float:
    """Return the latency of the nearest rank."""
    rank = max(1, math.ceil(total * share))
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return seconds_of(bucket)
    return seconds_of(max(counts))
