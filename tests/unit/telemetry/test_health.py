"""What is wrong now, as the alerts would report it."""

from pathlib import Path

import pytest
import yaml

from serve_app.telemetry.health import GAUGE_RULES, MAX_KV_CACHE, MAX_WAITING, find_problems, state_of
from serve_app.telemetry.series import COPIES_LAG, PART_UP, REGION_DRAINED, STANDBY_LAG, STANDBYS, PrometheusMetrics

RULES = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load(Path("configs/prometheus/manta.rules.yaml").read_text())["groups"]
    for rule in group["rules"]
}
QUIET = {"deployments": [], "engines": [], "nodes": []}


def deployment(status="HEALTHY", message="", name="model:demo", **replicas):
    return {"name": name, "status": status, "trigger": "AUTOSCALING", "message": message, "replicas": replicas}


def engine(**more):
    return {"model": "demo", "running": 1.0, "waiting": 0.0, "kv_cache": 0.1, "tokens_per_s": None, **more}


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (deployment(RUNNING=1), "ready"),
        (deployment("UPDATING", RUNNING=1, STARTING=1), "ready"),
        (deployment("UPDATING", STARTING=1), "starting"),
        (deployment("UPSCALING"), "starting"),
        (deployment(RECOVERING=1), "starting"),
        (deployment(), "scaled to zero"),
        (deployment(STOPPING=1), "scaled to zero"),
        (deployment("UNHEALTHY", STARTING=1), "unavailable"),
        (deployment("DEPLOY_FAILED"), "unavailable"),
    ],
)
def test_the_state_of_a_deployment_is_whether_it_can_answer(seen, state):
    assert state_of(seen) == state


def test_nothing_is_wrong_in_a_service_that_runs():
    metrics = PrometheusMetrics()
    for part in ("database", "object store", "gatekeeper"):
        metrics.add(PART_UP, (part,), 1.0)
    metrics.add(STANDBYS, ("synchronous",), 1.0)
    seen = {**QUIET, "deployments": [deployment(RUNNING=1), deployment("UPDATING", STARTING=1)], "engines": [engine()]}
    assert find_problems(seen, metrics) == []


def test_each_problem_names_what_is_wrong_and_its_alert():
    metrics = PrometheusMetrics()
    metrics.add(PART_UP, ("database",), 0.0)
    metrics.add(PART_UP, ("gatekeeper",), 1.0)
    metrics.add(COPIES_LAG, ("far",), 901.0)
    metrics.add(COPIES_LAG, ("near",), 900.0)
    metrics.add(REGION_DRAINED, ("asia",), 1.0)
    metrics.add(STANDBY_LAG, ("one",), float("nan"))
    metrics.add(STANDBYS, ("synchronous",), 0.0)
    seen = {
        **QUIET,
        "deployments": [deployment("UNHEALTHY", "It failed to start.")],
        "engines": [engine(waiting=51.0), engine(model="other", kv_cache=0.96)],
    }
    found = {alert: text for text, alert in find_problems(seen, metrics)}
    assert found == {
        "MantaDeploymentUnhealthy": "The deployment model:demo is unhealthy. Serve reports: It failed to start.",
        "MantaRequestsWait": "51 requests are waiting in the engines of demo.",
        "MantaCacheFull": "The KV cache of other is 96% full.",
        "MantaPartAway": "The database does not answer.",
        "MantaObjectCopiesLag": "The object store far has been missing content for 901 seconds.",
        "MantaRegionDrained": "The region asia is drained.",
        "MantaDatabaseAlone": "No standby of the database confirms its commits.",
    }
    assert set(found) <= set(RULES)


@pytest.mark.parametrize("rule", GAUGE_RULES, ids=lambda rule: rule.alert)
def test_a_gauge_is_wrong_where_its_alert_says_so(rule):
    expression = RULES[rule.alert]
    assert f"ray_{rule.gauge.name})" in expression
    comparison, bound = expression.split()[-2], float(expression.split()[-1])
    wrong, right = (bound, bound + 1) if comparison == "==" else (bound + 1, bound)
    assert comparison in ("==", ">")
    assert (rule.is_wrong(wrong), rule.is_wrong(right)) == (True, False)


def test_the_bounds_of_engines_are_those_of_their_alerts():
    assert RULES["MantaRequestsWait"].endswith(f"> {MAX_WAITING}")
    assert RULES["MantaCacheFull"].endswith(f"> {MAX_KV_CACHE}")
