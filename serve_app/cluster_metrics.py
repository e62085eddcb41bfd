"""Measurements of the whole cluster: every ingress replica's and every batch worker's, exported by Ray's own metrics
agent on each node.

`/metrics` shows the one process that answers it; these carry the replica as a label and are what a dashboard reads.
Only works inside a process of Ray's.
"""

from ray.serve import metrics

from deployments.state.protocol import RequestRecord
from serve_app.observability import SECONDS, TOKEN_SECONDS, Metrics, mean_inter_token_s, route_label


class ClusterCounts:
    """What has been answered, in Ray's metrics; names follow OpenTelemetry's gen_ai where it has one."""

    def __init__(self) -> None:
        self._requests = metrics.Counter(
            "manta_requests", description="Requests answered", tag_keys=("route", "model", "tier", "status", "code")
        )
        self._tokens = metrics.Counter("manta_tokens", description="Tokens used", tag_keys=("model", "tier", "type"))
        self._duration = metrics.Histogram(
            "gen_ai_server_request_duration_seconds",
            description="Whole time of an answer",
            boundaries=list(SECONDS),
            tag_keys=("route", "model"),
        )
        self._ttft = metrics.Histogram(
            "gen_ai_server_time_to_first_token_seconds",
            description="Time until the first piece of a stream",
            boundaries=list(SECONDS),
            tag_keys=("model",),
        )
        self._inter_token = metrics.Histogram(
            "gen_ai_server_time_per_output_token_seconds",
            description="Mean time between the tokens of a stream",
            boundaries=list(TOKEN_SECONDS),
            tag_keys=("model",),
        )

    def add(self, record: RequestRecord) -> None:
        """Count a request or a line of a batch that has been answered."""
        route, model, tier = route_label(record), record.model or "", record.tier or ""
        self._requests.inc(
            tags={
                "route": route,
                "model": model,
                "tier": tier,
                "status": str(record.status),
                "code": record.code or "",
            }
        )
        self._duration.observe(record.total_s, tags={"route": route, "model": model})
        if record.stream and record.ttft_s is not None:
            self._ttft.observe(record.ttft_s, tags={"model": model})
        inter_token_s = mean_inter_token_s(record)
        if inter_token_s is not None:
            self._inter_token.observe(inter_token_s, tags={"model": model})
        for kind, tokens in (
            ("prompt", record.prompt_tokens),
            ("cached", record.cached_tokens),
            ("completion", record.completion_tokens),
        ):
            if tokens:
                self._tokens.inc(tokens, tags={"model": model, "tier": tier, "type": kind})


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
