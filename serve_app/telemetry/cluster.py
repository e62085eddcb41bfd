"""The cluster for operators: the deployments from Serve, and the engines' metrics from Ray's agent on each node."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from urllib.request import urlopen

import ray
from prometheus_client.parser import text_string_to_metric_families
from ray import serve

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


class ServeView:
    """The state of the cluster, cached for two seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}
        self._at = float("-inf")
        self._totals: dict[str, tuple[float, float]] = {}
        self._looking = asyncio.Lock()

    async def look(self) -> dict[str, Any]:
        """Return `deployments`, `nodes` and `engines`, each a list of dicts.

        A deployment has name, status, trigger, message and replicas by state. A node has address, is_alive and its
        resources. An engine has model, running and waiting requests, kv_cache from 0 to 1, and tokens_per_s since the
        last look, None if it is unknown.
        """
        async with self._looking:
            if time.monotonic() - self._at > _FRESH_S:
                self._seen = await asyncio.to_thread(self._read)
                self._at = time.monotonic()
            return self._seen

    def _read(self) -> dict[str, Any]:
        nodes = ray.nodes()
        return {
            "deployments": _deployments(),
            "nodes": [_node(node) for node in nodes],
            "engines": self._engines(nodes),
        }

    def _engines(self, nodes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for node in nodes:
            if node["Alive"]:
                for model, reading, value in _readings(node["NodeManagerAddress"], node["MetricsExportPort"]):
                    figures = found[model]
                    figures[reading] = (
                        max(figures[reading], value) if reading == "kv_cache" else figures[reading] + value
                    )
        now = time.monotonic()
        engines = []
        for model, figures in sorted(found.items()):
            total = figures["generated"] + figures["read"]
            at, before = self._totals.get(model, (now, total))
            self._totals[model] = now, total
            speed = (total - before) / (now - at) if now > at and total >= before else None
            engines.append({"model": model, "tokens_per_s": speed, **{n: figures[n] for n in _READINGS.values()}})
        return engines


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


def _node(node: dict[str, Any]) -> dict[str, Any]:
    resources = node.get("Resources", {})
    return {
        "address": node["NodeManagerAddress"],
        "is_alive": node["Alive"],
        "cpus": resources.get("CPU", 0.0),
        "gpus": resources.get("GPU", 0.0),
        "memory_bytes": resources.get("memory", 0.0),
    }


def _readings(address: str, port: int) -> list[tuple[str, str, float]]:
    """Return model, name and value of each engine metric of a node; empty while its agent is away."""
    host = f"[{address}]" if ":" in address else address
    try:
        with urlopen(f"http://{host}:{port}/metrics", timeout=_TIMEOUT_S) as answer:
            text = answer.read(_MAX_BYTES).decode("utf-8", "replace")
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (OSError, ValueError):
        return []
    found = []
    for sample in samples:
        reading = _READINGS.get(sample.name.replace(":", "_"))
        if reading is not None:
            found.append((sample.labels.get("model_name", ""), reading, float(sample.value)))
    return found
