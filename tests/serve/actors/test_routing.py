"""Serve's own handle places requests as their `Choice` says: its router runs a copy of this project's code."""

from collections.abc import Iterator
from typing import Any

import pytest
from ray import serve

from deployments.models.config import ModelConfig
from deployments.replica.server import deployment_options
from deployments.routing.placement import Choice
from tests.serve.configurations import scripted

pytestmark = [pytest.mark.serve, pytest.mark.timeout(300)]

NUM_TRIES = 20


class Idle:
    """A replica that does nothing."""


@pytest.fixture(scope="module")
def handle(ray_cluster: None) -> Iterator[Any]:
    """A handle of three replicas whose requests are routed as those of a model."""
    options = deployment_options(ModelConfig.model_validate(scripted("m")))
    deployment = serve.deployment(
        Idle,
        num_replicas=3,
        ray_actor_options={"num_cpus": 0.1},
        request_router_config=options["request_router_config"],
    )
    serve.start(proxy_location="Disabled")
    yield serve.run(deployment.bind(), route_prefix=None)
    serve.shutdown()


async def chosen(handle: Any, affinity: str | None, excluded: frozenset[str] = frozenset()) -> set[str]:
    """Return the replicas that are chosen for many requests."""
    choice, found = Choice(affinity, excluded, lambda replica_id: 0), set()
    for _ in range(NUM_TRIES):
        async with handle.choose_replica(choice, _reserve=False) as selection:
            found.add(selection.replica_id)
    return found


async def test_requests_with_the_same_prefix_go_to_one_replica_and_others_to_all(handle: Any) -> None:
    assert len(await chosen(handle, "prefix")) == 1
    assert len(await chosen(handle, None)) == 3


async def test_a_replica_that_was_tried_is_not_chosen_again(handle: Any) -> None:
    for affinity in ("prefix", None):
        left, *tried = sorted(await chosen(handle, None))
        assert await chosen(handle, affinity, frozenset(tried)) == {left}
