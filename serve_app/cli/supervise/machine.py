"""What of a configuration this machine has no room for, or no program for."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from deployments.config import ConfigError
from deployments.models.placement import placement_bundles
from deployments.tools.config import ToolsConfig
from deployments.tools.sandbox.host import prepare_host
from deployments.tools.sandbox.root import SandboxUnavailable
from serve_app.config import ServedModel, ServiceConfig

GIB = 1024**3
_CACHE_GIB = "VLLM_CPU_KVCACHE_SPACE"


def count_gpus() -> int:
    """Return how many GPUs NVIDIA's driver shows; 0 without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None or not Path("/dev/nvidiactl").exists():
        return 0
    listed = subprocess.run([program, "-L"], capture_output=True, text=True, check=False, timeout=30)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def find_shortages(config: ServiceConfig) -> Iterator[str]:
    """Yield a sentence for each resource of this machine that is too small for the replicas that start."""
    found = {"CPU": psutil.cpu_count() or 1, "GPU": count_gpus()}
    for resource, there in found.items():
        needs = {model.id: _replicas_of(model) * _amount(model, resource) for model in config.models}
        others = _others(config) if resource == "CPU" else 0.0
        if sum(needs.values()) + others > there + 1e-6:
            listed = ", ".join(f"{name} {amount:g}" for name, amount in needs.items() if amount)
            beside = f", the other parts {others:g}" if others else ""
            yield (
                f"The configuration reserves more {resource}s than the {there} of this machine: {listed}{beside}. "
                f"Lower {resource} in placement_group_config, or min_replicas in autoscaling_config"
            )
    total = psutil.virtual_memory().total
    caches = {model.id: _replicas_of(model) * _cache_gib(model) for model in config.models if model.device == "cpu"}
    if sum(caches.values()) * GIB > total:
        listed = ", ".join(f"{name} {amount:g} GiB" for name, amount in caches.items())
        yield (
            f"The KV caches need more than the {total / GIB:.0f} GiB of memory of this machine: {listed}. Lower "
            f"{_CACHE_GIB} in the models' env"
        )


def check_room(config: ServiceConfig) -> None:
    """Check that the replicas that start fit on this machine: Ray would wait for more of it, for ever.

    Raises:
        ConfigError: they do not.
    """
    if shortages := list(find_shortages(config)):
        raise ConfigError("\n".join(shortages))


def code_interpreter_problem(tools: ToolsConfig) -> str | None:
    """Return why the code interpreter will be off on this machine; None if it will not be, or is not configured."""
    config = tools.code_interpreter
    if config is None:
        return None
    try:
        asyncio.run(prepare_host(config.limits, config.packages, has_shell=config.shell))
    except SandboxUnavailable as error:
        return str(error)
    return None


def _replicas_of(model: ServedModel) -> int:
    scaling = model.autoscaling_config
    return int(scaling.get("initial_replicas") or scaling.get("min_replicas", 1))


def _amount(model: ServedModel, resource: str) -> float:
    return sum(bundle.get(resource, 0) for bundle in placement_bundles(model))


def _others(config: ServiceConfig) -> float:
    """Return the CPUs of the ingress and of the code interpreter."""
    cpus = config.ingress.num_cpus * config.ingress.autoscaling_config.get("min_replicas", 1)
    if (tool := config.tools.code_interpreter) is not None:
        cpus += tool.actor_options["num_cpus"] * tool.autoscaling_config.get("min_replicas", 1)
    return float(cpus)


def _cache_gib(model: ServedModel) -> float:
    try:
        return float(model.env.get(_CACHE_GIB, 0))
    except ValueError:
        return 0.0
