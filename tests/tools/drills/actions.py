"""What is done to a service in a drill: processes that are killed, nodes that go, links that are cut.

An action returns once the harm is done and, where the drill says so, undone. It notes on the scene what it hit.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import psutil

from tests.tools.drills.cluster import HTTP_PORT, Cluster
from tests.tools.drills.load import Door, Load
from tests.tools.drills.nodes import Node, end
from tests.tools.drills.roles import find
from tests.tools.drills.sockets import accepted_by

SINGLE = ("gatekeeper", "coordinator")
CHECK_S = 1.0
"""How long a load balancer in front of the nodes takes to see that one is away."""


@dataclass
class Scene:
    """A service under load, and what was done to it."""

    cluster: Cluster
    load: Load
    at: float = 0.0
    """When the harm began, in seconds since the round began."""
    gone_at: float = 0.0
    """When the node was off the network, 0 where none was taken away."""
    ports: set[int] = field(default_factory=set)
    """The clients' ports of the connections that ended with what was killed."""
    num_connections: int = 0
    """How many connections the killed processes had."""
    nodes: set[str] = field(default_factory=set)
    """The nodes that were taken away."""
    roles_before: dict[str, int] = field(default_factory=dict)
    """How many processes had the role of what was killed."""
    victims: set[int] = field(default_factory=set)
    """The process ids of what was killed."""


Action = Callable[[Scene], Awaitable[None]]


async def nothing(scene: Scene) -> None:
    """Leave the service in peace."""
    scene.at = scene.load.now


def kill(role: str) -> Action:
    """Return what kills one process with a role, on a node that serves where there is one."""

    async def act(scene: Scene) -> None:
        found = await asyncio.to_thread(find, scene.cluster, role)
        if not found:
            raise LookupError(f"no process is a {role}")
        scene.roles_before = {role: len(found)}
        _, victim = ([one for one in found if one[0] in scene.cluster.doors] or found)[0]
        _note_connections(scene, victim)
        scene.at = scene.load.now
        scene.victims.add(victim.pid)
        end([victim])

    return act


def _note_connections(scene: Scene, process: psutil.Process) -> None:
    """Note who is connected to a process, and how many connections its own listening ports have."""
    accepted = accepted_by(process.pid)
    scene.ports |= {one.other_port for one in accepted if one.own_port == HTTP_PORT}
    scene.num_connections += len(accepted)


def lose_worker(back_after_s: float | None = None) -> Action:
    """Return what takes a worker's power away, and gives it back some seconds later; see `_most_needed`."""

    async def act(scene: Scene) -> None:
        node = await asyncio.to_thread(_most_needed, scene.cluster)
        await _cut_off(scene, node)
        await asyncio.to_thread(node.kill)
        await asyncio.sleep(CHECK_S)
        scene.load.leave(node.name)
        if back_after_s is not None:
            await asyncio.sleep(back_after_s)
            await asyncio.to_thread(node.restart)

    return act


def cut_worker(for_s: float) -> Action:
    """Return what cuts a worker off the network, without a word to anybody, and heals the link later."""

    async def act(scene: Scene) -> None:
        node = await asyncio.to_thread(_most_needed, scene.cluster)
        await _cut_off(scene, node)
        await asyncio.sleep(CHECK_S)
        scene.load.leave(node.name)
        await asyncio.sleep(for_s - CHECK_S)
        node.heal()

    return act


def lose_head(away_s: float, *, is_replaced: bool = False) -> Action:
    """Return what takes the head's power away; it comes back after `away_s`, or another does at another address."""

    async def act(scene: Scene) -> None:
        head = scene.cluster.head
        await _cut_off(scene, head)
        await asyncio.to_thread(head.kill)
        if head in scene.cluster.doors:
            await asyncio.sleep(CHECK_S)
            scene.load.leave(head.name)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(scene.cluster.replace_head if is_replaced else head.restart)

    return act


def _most_needed(cluster: Cluster) -> Node:
    """Return the worker with the gatekeeper, the first where none has it."""
    homes = [node for node, _ in find(cluster, "gatekeeper") if node in cluster.workers]
    return (homes or cluster.workers)[0]


async def _cut_off(scene: Scene, node: Node) -> None:
    """Take a node off the network. Of what the cluster has one, another has to come elsewhere.

    What takes long runs in a thread: clients whose loop stood still would note first bytes too late.
    """
    lost = {role: await asyncio.to_thread(find, scene.cluster, role, node) for role in SINGLE}
    scene.roles_before |= {role: 1 for role, processes in lost.items() if processes}
    scene.victims |= {process.pid for processes in lost.values() for _, process in processes}
    scene.nodes.add(node.name)
    scene.at = scene.load.now
    await asyncio.to_thread(node.cut)
    scene.gone_at = scene.load.now


async def deploy_change(scene: Scene) -> None:
    """Deploy a configuration in which the model differs, so that each replica is replaced."""
    cluster = scene.cluster
    scene.at = scene.load.now
    await asyncio.to_thread(cluster.deploy, cluster.changed_config())


async def replace_worker(scene: Scene) -> None:
    """Replace a worker by another node, as an operator does who wants nobody to notice; see `_most_needed`."""
    cluster, load = scene.cluster, scene.load
    leaving = await asyncio.to_thread(_most_needed, cluster)
    scene.at = load.now
    coming = await asyncio.to_thread(cluster.add_worker)
    load.open(Door(coming.name, cluster.url_of(coming)))
    await asyncio.to_thread(cluster.drain, leaving)
    await load.retire(leaving.name)
    await asyncio.to_thread(cluster.retire, leaving)


async def move_on(scene: Scene) -> None:
    """Move to this version: its cluster starts beside the one that runs, takes the clients, and the other one ends."""
    cluster, load = scene.cluster, scene.load
    scene.at = load.now
    former = await asyncio.to_thread(cluster.succeed)
    for node in cluster.doors:
        load.open(Door(node.name, cluster.url_of(node)))
    for node in former:
        await load.retire(node.name)
    for node in reversed(former):
        await asyncio.to_thread(cluster.retire, node)


async def until_roles_are_back(scene: Scene, timeout_s: float) -> float | None:
    """Return how many seconds after the harm each role had as many processes as before, None if not in time."""
    began = scene.load.now
    while scene.load.now - max(began, scene.at) < timeout_s:
        if not scene.victims:
            await asyncio.sleep(0.05)
            continue
        found = {role: await asyncio.to_thread(find, scene.cluster, role) for role in scene.roles_before}
        living = {role: {one.pid for _, one in processes} - scene.victims for role, processes in found.items()}
        if all(len(living[role]) >= num for role, num in scene.roles_before.items()):
            return scene.load.now - scene.at
        await asyncio.sleep(0.1)
    return None
