"""The cluster: deployments from Serve, nodes from Ray, figures of engines and GPUs from Ray's agent on each node."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.request import urlopen

import ray
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from ray import serve

Seen = TypeVar("Seen")

_FRESH_S = 2.0
_TIMEOUT_S = 1.5
_MAX_BYTES = 16 * 1024 * 1024
_READINGS = {
    "ray_vllm_num_requests_running": "running",
    "ray_vllm_num_requests_waiting": "waiting",
    "ray_vllm_kv_cache_usage_perc": "kv_cache",
    "ray_vllm_generation_tokens_total": "generated",
    "ray_vllm_prompt_tokens_total": "read",
}
_GPU_READINGS = {
    "ray_node_gpus_utilization": "percent",
    "ray_node_gram_used": "used_bytes",
    "ray_node_gram_available": "free_bytes",
}
_MIB = 1024 * 1024


class _Cached(Generic[Seen]):
    """What `read` returned at most two seconds ago. All wait for one reading, however slow Ray is."""

    def __init__(self, read: Callable[[], Awaitable[Seen]]) -> None:
        self._read = read
        self._reading: asyncio.Task[Seen] | None = None
        self._at = float("-inf")

    async def get(self) -> Seen:
        if self._reading is None or (self._reading.done() and time.monotonic() - self._at > _FRESH_S):
            self._reading = asyncio.create_task(self._read_again())
        return await asyncio.shield(self._reading)

    async def _read_again(self) -> Seen:
        seen = await self._read()
        self._at = time.monotonic()
        return seen


class ServeView:
    """The state of the cluster, cached for two seconds.

    `tools` return why a tool is off, None if it is on; they raise while it does not answer.
    """

    def __init__(self, tools: Mapping[str, Callable[[], Awaitable[str | None]]] | None = None) -> None:
        self._totals: dict[str, tuple[float, float]] = {}
        self._tools = _Cached(partial(_read_tools, tools or {}))
        self._deployments = _Cached(partial(asyncio.to_thread, _deployments))
        self._nodes = _Cached(partial(asyncio.to_thread, self._read_nodes))

    async def look(self) -> dict[str, Any]:
        """Return `deployments`, `nodes`, `engines` and `tools`, each a list of dicts.

        A node has address, is_alive, its resources, and `gpus_in_use`: each with index, percent, used_bytes and
        total_bytes. An engine has model, running and waiting requests, kv_cache from 0 to 1, and tokens_per_s since the
        last look, None if it is unknown. A tool has name, state (on, off, or away while it does not answer), and the
        reason why it is off.
        """
        deployments, nodes, tools = await asyncio.gather(self.deployments(), self._nodes.get(), self._tools.get())
        return {"deployments": deployments, "tools": tools, **nodes}

    async def deployments(self) -> list[dict[str, Any]]:
        """Return the deployments, each with name, status, trigger, message and replicas by state."""
        return await self._deployments.get()

    def _read_nodes(self) -> dict[str, Any]:
        nodes = ray.nodes()
        samples = [_samples(node) for node in nodes]
        return {
            "nodes": [_node(node, of_node) for node, of_node in zip(nodes, samples, strict=True)],
            "engines": self._engines(sample for of_node in samples for sample in of_node),
        }

    def _engines(self, samples: Iterable[Sample]) -> list[dict[str, Any]]:
        found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for sample in samples:
            reading = _READINGS.get(sample.name.replace(":", "_"))
            if reading is not None:
                figures, value = found[sample.labels.get("model_name", "")], float(sample.value)
                figures[reading] = max(figures[reading], value) if reading == "kv_cache" else figures[reading] + value
        now = time.monotonic()
        engines = []
        for model, figures in sorted(found.items()):
            total = figures["generated"] + figures["read"]
            at, before = self._totals.get(model, (now, total))
            self._totals[model] = now, total
            speed = (total - before) / (now - at) if now > at and total >= before else None
            engines.append({"model": model, "tokens_per_s": speed, **{n: figures[n] for n in _READINGS.values()}})
        return engines


async def _read_tools(tools: Mapping[str, Callable[[], Awaitable[str | None]]]) -> list[dict[str, Any]]:
    found = []
    for name, find_reason in tools.items():
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reason = await find_reason()
            state = "on" if reason is None else "off"
        except Exception:
            reason, state = None, "away"
        found.append({"name": name, "state": state, "reason": reason})
    return found


def _deployments() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "status": deployment.status.value,
            "trigger": deployment.status_trigger.value,
            "message": deployment.message[:500],
            "replicas": {str(getattr(state, "value", state)): n for state, n in deployment.replica_states.items()},
        }
        for application in serve.status().applications.values()
        for name, deployment in sorted(application.deployments.items())
    ]


def _node(node: dict[str, Any], samples: Iterable[Sample]) -> dict[str, Any]:
    resources = node.get("Resources", {})
    return {
        "address": node["NodeManagerAddress"],
        "is_alive": node["Alive"],
        "cpus": resources.get("CPU", 0.0),
        "gpus": resources.get("GPU", 0.0),
        "memory_bytes": resources.get("memory", 0.0),
        "gpus_in_use": _gpus(samples),
    }


def _gpus(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """Return how busy each GPU of a node is; Ray's agent says the memory in MiB."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        reading = _GPU_READINGS.get(sample.name)
        if reading is not None:
            found[sample.labels.get("GpuIndex", "")][reading] = sample.value * (1 if reading == "percent" else _MIB)
    return [
        {
            "index": index,
            "percent": one["percent"],
            "used_bytes": one["used_bytes"],
            "total_bytes": one["used_bytes"] + one["free_bytes"],
        }
        for index, one in sorted(found.items())
    ]


def _samples(node: dict[str, Any]) -> list[Sample]:
    """Return the metrics of a node; empty while it or its agent is away."""
    if not node["Alive"]:
        return []
    address, port = node["NodeManagerAddress"], node["MetricsExportPort"]
    host = f"[{address}]" if ":" in address else address
    try:
        with urlopen(f"http://{host}:{port}/metrics", timeout=_TIMEOUT_S) as answer:
            text = answer.read(_MAX_BYTES).decode("utf-8", "replace")
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (OSError, ValueError):
        return []
