"""Latencies as counts in fixed buckets, each 5 % wide: they add up over periods, models and accounts. Pure.

Bucket 0 ends at 0.1 ms, bucket n at 0.1 ms times 1.05^n. A percentile is known to within 2.5 %.
"""

import math
from collections.abc import Iterable, Mapping

LEAST_S = 1e-4
GROWTH = 1.05
LAST = 400
"""The bucket of all that takes longer than 8 hours."""
_LOG_GROWTH = math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency."""
    if seconds <= LEAST_S:
        return 0
    return min(LAST, math.ceil(math.log(seconds / LEAST_S) / _LOG_GROWTH))


def seconds_of(bucket: int) -> float:
    """Return the middle of a bucket in seconds: no latency in it is further than 2.5 % from that."""
    return LEAST_S if bucket == 0 else float(LEAST_S * GROWTH ** (bucket - 0.5))


def percentiles(counts: Mapping[int, int], shares: Iterable[float]) -> list[float | None]:
    """Return the latency in seconds under which each share (0 to 1) of the counted lies; None where none are."""
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
