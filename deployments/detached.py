"""Detached actors, one per cluster: found by name, they outlive their starter, and Ray restarts them when killed.

Such an actor has the methods `fingerprint`, which identifies its configuration, and `stop`. It leaves a draining node
before the node ends.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deployments.config import ConfigError

logger = logging.getLogger(__name__)

NAMESPACE = "manta"
_START_ATTEMPTS = 5
_START_TIMEOUT_S = 60
_HEAD = "node:__internal_head__"
_SHARE = 0.001
_LOOK_S = 1.0
_LOOK_TIMEOUT_S = 5


def start_detached(actor_class: type[Any], argument: Any, wanted: str, name: str, stop_s: float, **options: Any) -> Any:
    """Return the handle of the actor `name`; start it if it is not running with the fingerprint `wanted`.

    Several processes may start it at once. An actor with another configuration has `stop_s` seconds to stop.
    `placement` chooses the node.

    Raises:
        ConfigError: another process keeps replacing it.
    """
    options |= {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    options |= {"max_restarts": -1, "max_task_retries": 0, **placement(ray.nodes(), _own_node())}
    actor = ray.remote(actor_class).options(**options)
    for _ in range(_START_ATTEMPTS):
        handle = actor.remote(argument)
        try:
            running = ray.get(handle.fingerprint.remote(), timeout=_START_TIMEOUT_S)
        except RayActorError:  # It ended before it answered: another starter replaces it.
            time.sleep(0.2)
            continue
        if running == wanted:
            return handle
        logger.info("The actor %s runs with another configuration and is restarted.", name)
        stop_detached(name, stop_s)
    raise ConfigError(f"The actor {name} did not start with this configuration; is another service starting beside it?")


def placement(nodes: Sequence[Mapping[str, Any]], own_node: str) -> dict[str, Any]:
    """Return Ray's options for the node of an actor, given Ray's list of nodes and the id of the caller's node.

    An actor without requirements could run on any node, also where strangers' code runs; those nodes offer no CPU. If
    nodes other than the head offer CPUs, the actor starts on one of them, preferably the caller's, and keeps running
    while the head is away; if its node dies, Ray starts it on another node with a CPU. Otherwise it runs on the head.
    """
    others = [
        node["NodeID"]
        for node in nodes
        if node["Alive"] and node["Resources"].get("CPU") and _HEAD not in node["Resources"]
    ]
    if not others:
        return {"num_cpus": 0, "resources": {_HEAD: _SHARE}}
    first = own_node if own_node in others else others[0]
    return {"num_cpus": _SHARE, "scheduling_strategy": NodeAffinitySchedulingStrategy(first, soft=True)}


def _own_node() -> str:
    node: str = ray.get_runtime_context().get_node_id()
    return node


def stop_detached(name: str, stop_s: float) -> None:
    """Give the actor `stop_s` seconds to stop by itself, then kill it. Does nothing if there is no such actor."""
    try:
        handle = ray.get_actor(name, NAMESPACE)
    except ValueError:
        return
    try:
        ray.get(handle.stop.remote(), timeout=stop_s)
    except RayError as error:
        logger.warning("The actor %s did not stop by itself: %s", name, type(error).__name__)
    ray.kill(handle, no_restart=True)


def leave_when_drained(leave: Callable[[], None]) -> None:
    """Have this actor call `leave` and end as soon as Ray drains its node, so that Ray restarts it on another."""
    context = ray.get_runtime_context()
    arguments = (context.get_node_id(), context.gcs_address, leave)
    threading.Thread(target=_leave_when_drained, args=arguments, name="drain", daemon=True).start()


def _leave_when_drained(own_node: str, gcs_address: str, leave: Callable[[], None]) -> None:
    while True:
        time.sleep(_LOOK_S)
        try:
            status = get_cluster_status(gcs_address, _LOOK_TIMEOUT_S)
        except Exception as error:  # The head is away, which shows as many different errors.
            logger.debug("Whether the node drains is not known: %s", type(error).__name__)
            continue
        if must_leave(own_node, [*status.active_nodes, *status.idle_nodes]):
            break
    logger.info("The node drains; this actor moves to another.")
    try:
        leave()
    finally:
        os._exit(1)  # Ray restarts an actor that seems to have crashed.


def must_leave(own_node: str, nodes: Sequence[Any]) -> bool:
    """Return whether an actor must leave its node, given all living nodes as Ray's autoscaler reports them.

    It stays if no other node can take it, and on the head.
    """
    totals = {node.node_id: {one.resource_name: one.total for one in node.resource_usage.usage} for node in nodes}
    draining = {node.node_id for node in nodes if node.node_status == "DRAINING"}
    can_go = any(total.get("CPU") for node_id, total in totals.items() if node_id not in draining)
    return own_node in draining and _HEAD not in totals[own_node] and can_go
