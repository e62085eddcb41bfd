"""The service that is drilled: two ingress replicas and two of one model, whose engine is scripted or vLLM's."""

from dataclasses import dataclass
from typing import Any

from tests.serve.configurations import scripted
from tests.service import CHAT, read_config

SCRIPTED_STEP_S = 0.05
FOR_NODES = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "120",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_SERVE_SLOW_STARTUP_WARNING_S": "120",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "4",
}
"""What Ray is started with on several nodes, as in configs/kubernetes/rayservice.yaml."""


@dataclass(frozen=True)
class DrilledEngine:
    """The model of a drill: `model` as in a configuration; `start_s` is how long its replica may take to start."""

    name: str
    model: dict[str, Any]


def _scripted_model() -> dict[str, Any]:
    return scripted(CHAT, max_concurrent_requests=64, engine_kwargs={"step_s": SCRIPTED_STEP_S}, drain_s=60)


def _demo_model() -> dict[str, Any]:
    """Return the demo model of local.yaml, with room for the few short prompts of a drill."""
    model: dict[str, Any] = read_config("local.yaml")["applications"][0]["args"]["models"][0]
    model["placement_group_config"] = {"bundles": [{"CPU": 0.5}]}
    model["drain_s"] = 60
    model["max_surge_percent"] = 0  # Ray gives a replica the emptiest node: a full one must be left first.
    model["env"] |= {"VLLM_CPU_KVCACHE_SPACE": "1"}
    model["engine_kwargs"] |= {"max_model_len": 1024, "max_num_batched_tokens": 1024}
    return model


ENGINES = {"scripted": DrilledEngine("scripted", _scripted_model()), "vllm": DrilledEngine("vllm", _demo_model())}


def service_config(engine: DrilledEngine, s3_url: str, port: int, **changes: Any) -> dict[str, Any]:
    """Return the Serve configuration; `changes` are further fields of the model."""
    store = {
        "url": "s3://manta/drills",
        "endpoint": s3_url,
        "region": "us-east-1",
        "access_key_id": {"env": "AWS_ACCESS_KEY_ID"},
        "secret_access_key": {"env": "AWS_SECRET_ACCESS_KEY"},
    }
    state = {
        "database_url": {"env": "MANTA_DATABASE_URL"},
        "pepper": {"env": "MANTA_PEPPER"},
        "master_key": {"env": "MANTA_MASTER_KEY"},
        "object_store": store,
    }
    two = {"min_replicas": 2, "max_replicas": 2}
    args = {
        "state": state,
        "ingress": {"num_cpus": 1, "drain_s": 60, "autoscaling_config": two},
        "batches": {"max_lines_in_flight": 8},  # About 25 lines a second: a batch is to last.
        "models": [{**engine.model, "autoscaling_config": two, **changes}],
    }
    application = {"name": "manta", "route_prefix": "/", "import_path": "serve_app.app:build", "args": args}
    http = {"host": "0.0.0.0", "port": port}
    return {"proxy_location": "EveryNode", "http_options": http, "applications": [application]}
