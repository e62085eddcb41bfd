"""A cluster that stands still: each of the states that a deployment can be in, and a node with a GPU."""

from copy import deepcopy
from typing import Any

from deployments.models.config import deployment_name

_GIB = 1024**3
_SEEN: dict[str, Any] = {
    "nodes": [
        {
            "address": "10.0.0.5",
            "is_alive": True,
            "cpus": 8.0,
            "gpus": 1.0,
            "memory_bytes": 32e9,
            "gpus_in_use": [{"index": "0", "percent": 87.0, "used_bytes": 1.0 * _GIB, "total_bytes": 4.0 * _GIB}],
        }
    ],
    "tools": [
        {"name": "file_search", "state": "on", "reason": None},
        {"name": "code_interpreter", "state": "off", "reason": "bubblewrap is not installed."},
    ],
    "engines": [
        {
            "model": "demo",
            "running": 3.0,
            "waiting": 0.0,
            "kv_cache": 0.42,
            "tokens_per_s": 812.0,
            "generated": 9.0,
            "read": 4.0,
        }
    ],
}


def deployment(name: str, status: str = "HEALTHY", message: str = "", **replicas: int) -> dict[str, Any]:
    """Return a deployment as `ServeView` does; `replicas` are by state."""
    return {"name": name, "status": status, "trigger": "AUTOSCALING", "message": message, "replicas": replicas}


class ClusterTwin:
    """A `ClusterView` that returns `seen`, which a test may change."""

    def __init__(self) -> None:
        self.seen = deepcopy(_SEEN)
        self.seen["deployments"] = [
            deployment("ingress", RUNNING=2),
            deployment(deployment_name("demo/one"), RUNNING=1),
            deployment(deployment_name("starting"), "UPSCALING", "Upscaling from 0 to 1 replicas.", STARTING=1),
            deployment(deployment_name("idle")),
        ]

    async def look(self) -> dict[str, Any]:
        return self.seen

    async def deployments(self) -> list[dict[str, Any]]:
        return list(self.seen["deployments"])
