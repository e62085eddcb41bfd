"""How many replicas are wanted for what the replicas report."""

import pytest
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from deployments.routing.autoscaling import ONGOING, desired_replicas


def context(ongoing: dict, queued: float = 0.0, running: int = 1, target: int | None = None) -> AutoscalingContext:
    return AutoscalingContext(
        deployment_id=None,
        deployment_name="model",
        app_name="manta",
        current_num_replicas=running,
        target_num_replicas=running if target is None else target,
        running_replicas=[f"replica-{index}" for index in range(running)],
        total_num_requests=0.0,
        total_queued_requests=queued,
        aggregated_metrics={ONGOING: ongoing},
        raw_metrics=None,
        capacity_adjusted_min_replicas=0,
        capacity_adjusted_max_replicas=4,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=None,
        config=AutoscalingConfig(target_ongoing_requests=8, min_replicas=0, max_replicas=4),
    )


@pytest.mark.parametrize(
    ("ongoing", "queued", "wanted"), [(0, 0, 0), (1, 0, 1), (8, 0, 1), (8.5, 0, 2), (8, 1, 2), (500, 0, 4)]
)
def test_as_many_as_bring_each_to_its_target_within_the_bounds(ongoing: float, queued: float, wanted: int) -> None:
    assert desired_replicas(context({"replica-0": ongoing}, queued)) == (wanted, {})


def test_a_request_that_waits_wakes_a_model_without_replicas() -> None:
    assert desired_replicas(context({}, queued=1, running=0)) == (1, {})
    assert desired_replicas(context({}, running=0)) == (0, {})


def test_a_replica_that_has_not_reported_keeps_all_where_they_are() -> None:
    assert desired_replicas(context({"replica-0": 2}, running=2)) == (2, {})
    assert desired_replicas(context({}, running=2, target=1)) == (1, {})
    assert desired_replicas(context({"replica-0": 30}, running=2)) == (4, {})
    assert desired_replicas(context({"replica-0": 2, "replica-1": 3}, running=2)) == (1, {})
