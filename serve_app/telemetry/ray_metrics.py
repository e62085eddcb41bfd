"""Measurements of every ingress replica and batch worker, exported by Ray's own metrics agent on each node.

`/metrics` shows only the process that answers it; these carry the replica as a label, and dashboards read them. Works
only in a process of Ray's.
"""

from ray.serve import metrics

from deployments.state.usage.record import RequestRecord
from serve_app.telemetry.observer import Metrics
from serve_app.telemetry.series import SERIES, samples_of


class ClusterCounts:
    """Counts of answers in Ray's metrics."""

    def __init__(self) -> None:
        self._counters = {
            one: metrics.Counter(one.name, description=one.description, tag_keys=one.labels)
            for one in SERIES
            if not one.buckets
        }
        self._histograms = {
            one: metrics.Histogram(
                one.name, description=one.description, boundaries=list(one.buckets), tag_keys=one.labels
            )
            for one in SERIES
            if one.buckets
        }

    def add(self, record: RequestRecord) -> None:
        """Count a request or a line of a batch that has been answered."""
        for series, values, amount in samples_of(record):
            tags = dict(zip(series.labels, values, strict=True))
            if series.buckets:
                self._histograms[series].observe(amount, tags=tags)
            else:
                self._counters[series].inc(amount, tags=tags)


class ClusterMetrics:
    """Measurements of this process, and the same in Ray's metrics; keeps `observer.Metrics`."""

    def __init__(self, local: Metrics) -> None:
        """Count in `local` too."""
        self._local = local
        self._counts = ClusterCounts()

    def begin(self) -> None:
        """Count a request that has come in."""
        self._local.begin()

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""
        self._local.end(record)
        self._counts.add(record)
