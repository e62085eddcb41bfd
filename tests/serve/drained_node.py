"""A cluster of a head and two nodes; the node with the gatekeeper drains: python -m THIS STATE_DIR.

Prints, as JSON, the nodes that the gatekeeper was on, and what its client saw on the way.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from deployments.limits.actor import RayTransport, start_gatekeeper
from deployments.limits.messages import Stopping, SyncRequest, TransportDown
from deployments.state.config import StateConfig, resolve_state

_NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
_ASKS_S = 0.1
_WITHIN_S = 150.0
_RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]


def node_of(gatekeeper: Any) -> str:
    node: str = ray.get(gatekeeper.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()))
    return node


async def drain(address: str, node: str) -> None:
    """Have Ray drain a node."""
    options = ["--address", address, "--node-id", node, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
    options += ["--reason-message", "replaced", "--deadline-remaining-seconds", "600"]
    command = await asyncio.create_subprocess_exec(*_RAY, "drain-node", *options, stdout=asyncio.subprocess.DEVNULL)
    assert await command.wait() == 0


async def what_a_client_meets(address: str, node: str) -> list[str]:
    """Return what syncs met while a node drains, without repetitions, until one was answered after the notice.

    A busy machine may take too long to answer one before that. What was met within _WITHIN_S comes back in any case.
    """
    transport = RayTransport()
    met: list[str] = []
    end_at = time.monotonic() + _WITHIN_S
    while ("Stopping" not in met or met[-1] != "answered") and time.monotonic() < end_at:
        try:
            await transport.sync(SyncRequest("client", 1, 0, 0.4, [], [], []))
            now = "answered"
        except (Stopping, TransportDown) as error:
            now = type(error).__name__
        if not met:
            draining = asyncio.create_task(drain(address, node))
        if met[-1:] != [now]:
            met.append(now)
        await asyncio.sleep(_ASKS_S)
    await draining
    return met


def main(state_dir: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**_NODE, "num_cpus": 0})
    for _ in range(2):
        cluster.add_node(**_NODE)
    ray.init(address=cluster.address)
    gatekeeper = start_gatekeeper(resolve_state(StateConfig(state_dir=Path(state_dir)), {}))
    first = node_of(gatekeeper)
    met = asyncio.run(what_a_client_meets(cluster.address, first))
    print(json.dumps({"first": first, "then": node_of(gatekeeper), "met": met}))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
