"""One running service whose engines are scripted, for nearly every test; and what starts a smaller one."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients import async_client, client, http, key
from tests.service import CHAT, EMBED, LONG, SMALL, Service, running_service

__all__ = ["async_client", "client", "http", "key"]

QUICK = {"upscale_delay_s": 0.5, "downscale_delay_s": 3, "metrics_interval_s": 0.25, "look_back_period_s": 1}
DRAIN_S = 300
"""As long as a slow machine may take to replace everything: streams run meanwhile."""
ENVIRONMENT = {
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.25",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.25",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
}


def scripted(model_id: str, **fields: Any) -> dict[str, Any]:
    """Return the configuration of a model that `scripted_engine` runs, with one replica."""
    return {
        "id": model_id,
        "source": "scripted",
        "engine": "tests.serve.scripted_engine:start_engine",
        "device": "cpu",
        "max_model_len": 8192,
        "placement_group_config": {"bundles": [{"CPU": 0.1}]},
        "drain_s": DRAIN_S,
        **fields,
    }


def service_config(models: list[dict[str, Any]], **args: Any) -> dict[str, Any]:
    """Return a Serve configuration with these models."""
    application = {"name": "manta", "route_prefix": "/", "import_path": "serve_app.app:build"}
    return {"proxy_location": "EveryNode", "applications": [{**application, "args": {"models": models, **args}}]}


def main_config() -> dict[str, Any]:
    """Return a service of several ingress replicas and models that scale in each of the ways there are."""
    scaling = {"min_replicas": 1, "max_replicas": 1, "target_ongoing_requests": 8, **QUICK}
    models = [
        scripted(CHAT, max_concurrent_requests=64, engine_kwargs={"step_s": 0.01}),
        scripted(
            SMALL,
            max_concurrent_requests=16,
            max_queued_requests=16,
            engine_kwargs={"step_s": 0.02},
            autoscaling_config={**scaling, "max_replicas": 2},
        ),
        scripted(
            EMBED,
            task="embed",
            autoscaling_config=scaling,
            batch_replicas={"min_replicas": 0, "max_replicas": 1},
            scale_to_zero_wait_s=180,
        ),
        scripted(LONG, autoscaling_config={**scaling, "min_replicas": 0}, scale_to_zero_wait_s=180),
    ]
    ingress = {"autoscaling_config": {**scaling, "min_replicas": 2, "max_replicas": 3}, "drain_s": DRAIN_S}
    containers = {
        "num_warm": 1,
        "preload": [],
        "max_containers": 16,
        "max_containers_per_account": 16,
        "autoscaling_config": {"min_replicas": 1, "max_replicas": 2, **QUICK},
    }
    return service_config(
        models,
        ingress=ingress,
        batches={"small_batch_lines": 500, "lease_s": 6},
        tools={"code_interpreter": containers},
    )


@pytest.fixture(scope="package")
def service() -> Iterator[Service]:
    """The service that nearly every test uses."""
    with running_service(main_config(), ENVIRONMENT) as service:
        yield service
