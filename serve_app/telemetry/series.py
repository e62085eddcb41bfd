"""The metrics: every series, what an answered request adds to each, and their values in this process.

`/metrics` renders `PrometheusMetrics`; `ray_metrics` exports the same series for the cluster. Names follow
OpenTelemetry's gen_ai where it has one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from deployments.state.usage.record import RequestRecord

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A metric: a histogram if it has buckets (upper bounds), else a gauge or a counter."""

    name: str
    description: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()
    is_gauge: bool = False


def _gauge(name: str, description: str, *labels: str) -> Series:
    return Series(name, description, labels, is_gauge=True)


REQUESTS = Series("manta_requests", "Requests answered", ("route", "model", "tier", "status", "code"))
TOKENS = Series("manta_tokens", "Tokens used", ("model", "tier", "type"))
DURATION = Series("gen_ai_server_request_duration_seconds", "Whole time of an answer", ("route", "model"), _SECONDS)
TTFT = Series(
    "gen_ai_server_time_to_first_token_seconds", "Time until the first piece of a stream", ("model",), _SECONDS
)
INTER_TOKEN = Series(
    "gen_ai_server_time_per_output_token_seconds",
    "Mean time between the tokens of a stream",
    ("model",),
    _TOKEN_SECONDS,
)
PART_UP = _gauge("manta_part_up", "Whether a part that requests need answers: 1 or 0", "part")
MOVED = Series("manta_requests_moved", "Times that a request lost the replica that ran it", ("model",))
COPIES_OWED = _gauge("manta_object_copies_owed", "Objects that one of two stores lacks", "store")
COPIES_LAG = _gauge("manta_object_copies_lag_seconds", "For how long a store has lacked the oldest of them", "store")
REGION_SEEN = _gauge("manta_region_seen_seconds", "For how long a region has not been heard of", "region")
REGION_DRAINED = _gauge("manta_region_drained", "Whether a region is drained: 1 or 0", "region")
LIMITS_AWAY = _gauge(
    "manta_region_limits_away_seconds",
    "For how long a region's gatekeeper has not answered: each keeps to its share of limits",
    "region",
)
LIMITS_ROOM = _gauge(
    "manta_limits_room", "Room of keys' minutes that is lent to other regions or borrowed of them", "way", "dimension"
)
STANDBY_LAG = _gauge("manta_database_standby_lag_seconds", "How far a standby of the database is behind", "standby")
STANDBYS = _gauge(
    "manta_database_standbys", "Standbys that follow the database; commits wait for synchronous ones", "commits"
)
WEBHOOKS_WAITING = _gauge("manta_webhooks_waiting", "Events that webhook endpoints have not acknowledged")
WEBHOOKS_OLDEST = _gauge("manta_webhooks_oldest_seconds", "For how long the oldest of them has waited")
SERIES = (REQUESTS, TOKENS, DURATION, TTFT, INTER_TOKEN)
"""The series of answered requests."""
PART_SERIES = (
    PART_UP,
    MOVED,
    COPIES_OWED,
    COPIES_LAG,
    REGION_SEEN,
    REGION_DRAINED,
    LIMITS_AWAY,
    LIMITS_ROOM,
    STANDBY_LAG,
    STANDBYS,
    WEBHOOKS_WAITING,
    WEBHOOKS_OLDEST,
)
"""The series that the watchers in `serve_app.telemetry.parts` set."""


def samples_of(record: RequestRecord) -> Iterator[tuple[Series, tuple[str, ...], float]]:
    """Yield the samples of an answered request: a series, the values of its labels, and the amount to add."""
    # Batch lines wait for free places, so their times are counted separately.
    route = record.route if record.batch_id is None else f"batch:{record.route}"
    model, tier = record.model or "", record.tier or ""
    yield REQUESTS, (route, model, tier, str(record.status), record.code or ""), 1
    yield DURATION, (route, model), record.total_s
    if record.stream and record.ttft_s is not None:
        yield TTFT, (model,), record.ttft_s
    inter_token_s = mean_inter_token_s(record)
    if inter_token_s is not None:
        yield INTER_TOKEN, (model,), inter_token_s
    for kind, tokens in (
        ("prompt", record.prompt_tokens),
        ("cached", record.cached_tokens),
        ("completion", record.completion_tokens),
    ):
        if tokens:
            yield TOKENS, (model, tier, kind), tokens


def mean_inter_token_s(record: RequestRecord) -> float | None:
    """Return the mean time between a stream's tokens in seconds, None for fewer than two tokens."""
    if not record.stream or record.ttft_s is None or record.completion_tokens < 2:
        return None
    return (record.total_s - record.ttft_s) / (record.completion_tokens - 1)


class PrometheusMetrics:
    """The metrics of this process, in Prometheus's format."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._in_flight = Gauge("manta_requests_in_flight", "Requests being answered", registry=registry)
        self._metrics = {one: _create(one, registry) for one in (*SERIES, *PART_SERIES)}
        self._adders: dict[tuple[Series, tuple[str, ...]], Callable[[float], None]] = {}

    def begin(self) -> None:
        """Count a request that has arrived."""
        self._in_flight.inc()

    def end(self, record: RequestRecord) -> None:
        """Count an answered request."""
        self._in_flight.dec()
        for series, values, amount in samples_of(record):
            self.add(series, values, amount)

    def add(self, series: Series, values: tuple[str, ...], amount: float) -> None:
        """Add to a counter, observe with a histogram, or set a gauge."""
        (self._adders.get((series, values)) or self._adder_of(series, values))(amount)

    def _adder_of(self, series: Series, values: tuple[str, ...]) -> Callable[[float], None]:
        """Return the function that adds under these labels. It is cached: looking it up costs more than counting."""
        metric = self._metrics[series]
        child = metric.labels(*values) if values else metric  # A metric without labels has no children.
        add = child.observe if isinstance(child, Histogram) else child.set if isinstance(child, Gauge) else child.inc
        self._adders[series, values] = add
        return add

    def values_of(self, gauge: Series) -> dict[tuple[str, ...], float]:
        """Return what a gauge was last set to, by the values of its labels."""
        samples = [sample for family in self._metrics[gauge].collect() for sample in family.samples]
        return {tuple(sample.labels[label] for label in gauge.labels): sample.value for sample in samples}

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)


def _create(series: Series, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if series.buckets:
        return Histogram(series.name, series.description, series.labels, registry=registry, buckets=series.buckets)
    kind = Gauge if series.is_gauge else Counter
    return kind(series.name, series.description, series.labels, registry=registry)
