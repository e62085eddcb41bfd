"""Measurements of the whole cluster: every ingress replica's and every batch worker's, exported by Ray's own metrics
agent on each node.

`/metrics` shows the one process that answers it; these carry the replica as a label and are what a dashboard reads.
Only works inside a process of Ray's.
"""

from ray.serve import metrics

from deployments.state.usage.record import RequestRecord
from serve_app.telemetry.observer import Metrics
from serve_app.telemetry.series import SERIES, samples_of


class ClusterCounts:
    """What has been answered, in Ray's metrics."""

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
    """Keeps `observability.Metrics` over Ray's metrics."""

    def __init__(self, local: Metrics) -> None:
        """Measure in the cluster as well as in `local`."""
        self._local = local
        self._counts = ClusterCounts()

    def begin(self) -> None:
        """Count a request that has come in."""
        self._local.begin()

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""
        self._local.end(record)
        self._counts.add(record)
