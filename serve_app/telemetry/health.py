"""What is wrong in the service now: what the alerts in `configs/prometheus/manta.rules.yaml` report, without waiting.

It reads the gauges of this process and the state of the cluster. Rates over time are Prometheus's alone.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from serve_app.telemetry.series import (
    COPIES_LAG,
    LIMITS_AWAY,
    PART_UP,
    REGION_DRAINED,
    REGION_SEEN,
    STANDBY_LAG,
    STANDBYS,
    PrometheusMetrics,
    Series,
)

State = Literal["ready", "starting", "scaled to zero", "unavailable"]

_BROKEN = ("UNHEALTHY", "DEPLOY_FAILED")
_CHANGING = ("UPDATING", "UPSCALING")
_COMING = ("STARTING", "UPDATING", "RECOVERING")
_ANSWERING = ("RUNNING", "PENDING_MIGRATION")


class Problem(NamedTuple):
    """Something that is wrong, in a sentence, and the name of the alert that reports it; empty if none does."""

    text: str
    alert: str


class GaugeRule(NamedTuple):
    """An alert about a gauge; `text` has a place for each of the gauge's labels, and for its `value`."""

    alert: str
    gauge: Series
    is_wrong: Callable[[float], bool]
    text: str


MAX_WAITING = 50
MAX_KV_CACHE = 0.95
GAUGE_RULES = (
    GaugeRule("MantaPartAway", PART_UP, lambda up: up == 0, "The {part} does not answer."),
    GaugeRule(
        "MantaObjectCopiesLag",
        COPIES_LAG,
        lambda age_s: age_s > 900,
        "The object store {store} has been missing content for {value:.0f} seconds.",
    ),
    GaugeRule(
        "MantaRegionGone",
        REGION_SEEN,
        lambda age_s: age_s > 60,
        "The region {region} has not been heard of for {value:.0f} seconds.",
    ),
    GaugeRule("MantaRegionDrained", REGION_DRAINED, lambda drained: drained == 1, "The region {region} is drained."),
    GaugeRule(
        "MantaLimitsApart",
        LIMITS_AWAY,
        lambda age_s: age_s > 60,
        "The gatekeeper of the region {region} has not answered for {value:.0f} seconds.",
    ),
    GaugeRule(
        "MantaStandbyLags",
        STANDBY_LAG,
        lambda lag_s: lag_s > 30,
        "The database's standby {standby} is {value:.0f} seconds behind.",
    ),
)


def state_of(deployment: Mapping[str, Any]) -> State:
    """Return whether a deployment of `ClusterView` can answer, or what has to happen first."""
    replicas = deployment["replicas"]
    if any(replicas.get(state) for state in _ANSWERING):
        return "ready"
    if deployment["status"] in _BROKEN:
        return "unavailable"
    if deployment["status"] in _CHANGING or any(replicas.get(state) for state in _COMING):
        return "starting"
    return "scaled to zero"


def find_problems(seen: Mapping[str, Any], metrics: PrometheusMetrics) -> list[Problem]:
    """Return what is wrong in the cluster, as `ClusterView.look` has seen it, and in the gauges of this process."""
    return [*_of_deployments(seen["deployments"]), *_of_engines(seen["engines"]), *_of_gauges(metrics)]


def _of_deployments(deployments: list[dict[str, Any]]) -> Iterator[Problem]:
    for one in deployments:
        if one["status"] in _BROKEN:
            reason = f" Serve reports: {one['message']}" if one["message"] else ""
            yield Problem(f"The deployment {one['name']} is unhealthy.{reason}", "MantaDeploymentUnhealthy")


def _of_engines(engines: list[dict[str, Any]]) -> Iterator[Problem]:
    for one in engines:
        if one["waiting"] > MAX_WAITING:
            text = f"{one['waiting']:,.0f} requests are waiting in the engines of {one['model']}."
            yield Problem(text, "MantaRequestsWait")
        if one["kv_cache"] > MAX_KV_CACHE:
            yield Problem(f"The KV cache of {one['model']} is {one['kv_cache']:.0%} full.", "MantaCacheFull")


def _of_gauges(metrics: PrometheusMetrics) -> Iterator[Problem]:
    for rule in GAUGE_RULES:
        for labels, value in sorted(metrics.values_of(rule.gauge).items()):
            if rule.is_wrong(value):
                named = dict(zip(rule.gauge.labels, labels, strict=True))
                yield Problem(rule.text.format(**named, value=value), rule.alert)
    if metrics.values_of(STANDBYS).get(("synchronous",)) == 0:
        yield Problem("No standby of the database confirms its commits.", "MantaDatabaseAlone")
