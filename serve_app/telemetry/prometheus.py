"""The measurements of one process, as Prometheus reads them from /metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from deployments.state.usage.record import RequestRecord
from serve_app.telemetry.series import PART_SERIES, SERIES, Series, samples_of


class PrometheusMetrics:
    """Measurements of this process as Prometheus reads them."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._in_flight = Gauge("manta_requests_in_flight", "Requests being answered", registry=registry)
        self._metrics = {one: _create(one, registry) for one in (*SERIES, *PART_SERIES)}
        self._adders: dict[tuple[Series, tuple[str, ...]], Callable[[float], None]] = {}

    def begin(self) -> None:
        """Count a request that has come in."""
        self._in_flight.inc()

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""
        self._in_flight.dec()
        for series, values, amount in samples_of(record):
            self.add(series, values, amount)

    def add(self, series: Series, values: tuple[str, ...], amount: float) -> None:
        """Add to a counter, observe with a histogram, or set a gauge."""
        (self._adders.get((series, values)) or self._adder_of(series, values))(amount)

    def _adder_of(self, series: Series, values: tuple[str, ...]) -> Callable[[float], None]:
        """Return what counts under these labels, and keep it: looking it up costs more than counting."""
        metric = self._metrics[series]
        child = metric.labels(*values) if values else metric  # One without labels has no children.
        add = child.observe if isinstance(child, Histogram) else child.set if isinstance(child, Gauge) else child.inc
        self._adders[series, values] = add
        return add

    def render(self) -> bytes:
        """Return every measurement as Prometheus reads it."""
        return generate_latest(self._registry)


def _create(series: Series, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if series.buckets:
        return Histogram(series.name, series.description, series.labels, registry=registry, buckets=series.buckets)
    kind = Gauge if series.is_gauge else Counter
    return kind(series.name, series.description, series.labels, registry=registry)
