"""The configurations of the services of these tests, whose engines are scripted."""

from typing import Any

from tests.certificates import CertificateFiles
from tests.service import CHAT, EMBED, LONG, SMALL

QUICK = {"upscale_delay_s": 0.5, "downscale_delay_s": 3, "metrics_interval_s": 0.25, "look_back_period_s": 1}
DRAIN_S = 300
"""As long as a slow machine may take to replace everything: streams run meanwhile."""
ENVIRONMENT = {
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.25",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.25",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
}
TIER = "counted"
"""The tier of the account that is added up, and of no other: metrics tell tiers apart, not accounts."""
CACHED = 3
"""The tokens of each prompt that the chat model of the fixed service says it had in its cache."""


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
            resume_wait_s=180,
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


def fixed_config(shown: CertificateFiles) -> dict[str, Any]:
    """Return a service whose replicas stay, two of the ingress and two of the chat model, over PostgreSQL.

    The ingress replicas show a certificate. Prices, the tier and what is cached are for figures.
    """
    stay = {"autoscaling_config": {"min_replicas": 2, "max_replicas": 2}}
    price = {"input": 1.0, "cached_input": 0.5, "output": 3.0}
    chat = {"engine_kwargs": {"step_s": 0.01, "cached": CACHED}, "price": price, "max_concurrent_requests": 64}
    limits = {"requests_per_minute": 1_000_000, "tokens_per_minute": 1_000_000_000, "enqueued_tokens": None}
    return service_config(
        [
            scripted(CHAT, resume_wait_s=120, **chat, **stay),
            scripted(SMALL, resume_wait_s=120, engine_kwargs={"step_s": 0.01}),
            scripted(EMBED, task="embed", price={"input": 1.0}),
        ],
        ingress=stay,
        state={"database_url": {"env": "MANTA_DATABASE_URL"}, "tiers": {TIER: limits}},
        tls={"certificate": str(shown.certificate), "key": str(shown.key), "authority": str(shown.trusted)},
    )


def fixed_environment(of_ray: CertificateFiles, database_url: str) -> dict[str, str]:
    """Return the environment of the fixed service, whose Ray processes speak TLS."""
    return {
        **ENVIRONMENT,
        "MANTA_DATABASE_URL": database_url,
        "RAY_metrics_report_interval_ms": "1000",  # How often Ray's agents are handed what is measured.
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(of_ray.certificate),
        "RAY_TLS_SERVER_KEY": str(of_ray.key),
        "RAY_TLS_CA_CERT": str(of_ray.trusted),
    }
