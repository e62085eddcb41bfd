"""The metrics of every ingress replica and batch worker, exported by Ray's metrics agent on each node.

`/metrics` shows only the process that answers it. These metrics have the replica as a label, and dashboards read them.
They work only in a Ray process.
"""

from collections.abc import Callable
from typing import Any

from ray.serve import metrics

from deployments.state.usage.record import RequestRecord
from serve_app.telemetry.series import PART_SERIES, SERIES, PrometheusMetrics, Series, samples_of


class ClusterCounts:
    """Ray's metrics of answered requests, and of other series if they are given."""

    def __init__(self, others: tuple[Series, ...] = ()) -> None:
        self._adders = {one: _create(one) for one in (*SERIES, *others)}

    def add_record(self, record: RequestRecord) -> None:
        """Count an answered request or batch line."""
        for series, values, amount in samples_of(record):
            self.add(series, values, amount)

    def add(self, series: Series, values: tuple[str, ...], amount: float) -> None:
        """Add to a counter, observe with a histogram, or set a gauge."""
        self._adders[series](amount, tags=dict(zip(series.labels, values, strict=True)))


class ClusterMetrics:
    """Counts in this process and in Ray's metrics; implements `trace.Metrics`."""

    def __init__(self, local: PrometheusMetrics) -> None:
        self._local = local
        self._counts = ClusterCounts(PART_SERIES)

    def begin(self) -> None:
        """Count a request that has arrived."""
        self._local.begin()

    def end(self, record: RequestRecord) -> None:
        """Count an answered request."""
        self._local.end(record)
        self._counts.add_record(record)

    def add(self, series: Series, values: tuple[str, ...], amount: float) -> None:
        """Add to a counter, observe with a histogram, or set a gauge."""
        self._local.add(series, values, amount)
        self._counts.add(series, values, amount)


def _create(series: Series) -> Callable[..., None]:
    about: dict[str, Any] = {"name": series.name, "description": series.description, "tag_keys": series.labels}
    if series.buckets:
        adder: Callable[..., None] = metrics.Histogram(boundaries=list(series.buckets), **about).observe
    else:
        adder = metrics.Gauge(**about).set if series.is_gauge else metrics.Counter(**about).inc
    return adder
