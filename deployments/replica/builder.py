"""From a model's configuration to its Serve deployment, without loading the engine.

What Serve must know before a replica runs is worked out here: the name, the bundles of resources, the scaling. It is
what `ray.serve.llm` says of the same model, which a test compares; asking it would import vLLM: ten seconds of CPU.
"""

from typing import Any

from ray import serve
from ray.serve.deployment import Application

from deployments.channel.tls import TlsFiles
from deployments.models.config import BatchReplicas, ModelConfig, deployment_name
from deployments.patience import USUAL, Patience
from deployments.replica.server import ModelReplica

# What the replica gets on top of the time to drain: to stop the engine.
STOP_S = 20.0


def build_model_deployment(model: ModelConfig, tls: TlsFiles | None = None, patience: Patience = USUAL) -> Application:
    """Return the Serve deployment of one model, not yet deployed."""
    options = deployment_options(model)
    return serve.deployment(ModelReplica, name=deployment_name(model.id), **options).bind(model, tls, patience)


def build_batch_deployment(
    model: ModelConfig, replicas: BatchReplicas, tls: TlsFiles | None = None, patience: Patience = USUAL
) -> Application:
    """Return the Serve deployment of the same model that runs the lines of batches only, not yet deployed."""
    scaling = {name: value for name, value in model.autoscaling_config.items() if name != "initial_replicas"}
    own = model.model_copy(update={"autoscaling_config": {**scaling, **replicas.model_dump()}})
    name = deployment_name(model.id, for_batches=True)
    return serve.deployment(ModelReplica, name=name, **deployment_options(own)).bind(own, tls, patience)


def deployment_options(model: ModelConfig) -> dict[str, Any]:
    """Return Serve's options for the deployment of a model."""
    group = model.placement_group_config or {}
    is_cpu = model.device == "cpu"
    actor = _actor_options(model)
    actor["runtime_env"] = {**actor.get("runtime_env", {}), "env_vars": dict(model.env)}
    return {
        "autoscaling_config": {
            "target_ongoing_requests": max(1, model.max_concurrent_requests // 2),
            **model.autoscaling_config,
            "policy": {"policy_function": "deployments.routing.autoscaling:desired_replicas"},
        },
        "request_router_config": {"request_router_class": "deployments.routing.prefix_router:PrefixRouter"},
        "ray_actor_options": actor,
        "placement_group_bundles": placement_bundles(model),
        "placement_group_strategy": group.get("strategy", "PACK"),
        "max_surge_percent": model.max_surge_percent if model.max_surge_percent is not None else 100 * is_cpu,
        "max_ongoing_requests": 1_000_000,  # Nothing comes over handles; the replica's channel has the real bound.
        "graceful_shutdown_timeout_s": model.drain_s + STOP_S,
        "health_check_period_s": 5.0,
        "health_check_timeout_s": 30.0,
    }


def placement_bundles(model: ModelConfig) -> list[dict[str, float]]:
    """Return the resources of one replica: a bundle for each of the engine's workers, the first also the replica's."""
    group = model.placement_group_config or {}
    per_worker = group.get("bundle_per_worker")
    if per_worker is None and not group.get("bundles"):
        per_worker = {"CPU" if model.device == "cpu" else "GPU": 1}
    bundles = (
        [dict(per_worker) for _ in range(model.num_workers)] if per_worker else [dict(one) for one in group["bundles"]]
    )
    if model.accelerator_type is not None:
        for bundle in bundles:
            bundle.setdefault(f"accelerator_type:{model.accelerator_type}", 0.001)
    actor = _actor_options(model)
    own = {"CPU": actor["num_cpus"], "GPU": actor.get("num_gpus", 0), **actor.get("resources", {})}
    if "memory" in actor:
        own["memory"] = actor["memory"]
    bundles[0] = {name: bundles[0].get(name, 0) + own.get(name, 0) for name in {*bundles[0], *own}}
    return bundles


def _actor_options(model: ModelConfig) -> dict[str, Any]:
    return {"num_cpus": 0, **model.ray_actor_options}  # The engine's bundle is what the replica needs.
