"""The resources that the replicas of a model ask Ray for."""

from typing import Any

from deployments.models.config import ModelConfig


def placement_bundles(model: ModelConfig) -> list[dict[str, float]]:
    """Return the resources of one replica: a bundle for each worker; the first one includes the replica itself."""
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
    actor = actor_options(model)
    own = {"CPU": actor["num_cpus"], "GPU": actor.get("num_gpus", 0), **actor.get("resources", {})}
    if "memory" in actor:
        own["memory"] = actor["memory"]
    bundles[0] = {name: bundles[0].get(name, 0) + own.get(name, 0) for name in {*bundles[0], *own}}
    return bundles


def actor_options(model: ModelConfig) -> dict[str, Any]:
    """Return Ray's options for the actor of a replica."""
    return {"num_cpus": 0, **model.ray_actor_options}  # The engine's bundle is what the replica needs.
