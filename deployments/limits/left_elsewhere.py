"""Has the request records handed over that dead ingress replicas left on nodes on which none was started again.

What others have left on its own node, each replica hands over (`client.left_records`). For the other nodes, the replica
whose address is the first of all runs a task of Ray there, once for as long as a node has no replica.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deployments.limits.actor import ACTOR_NAME, RayTransport
from deployments.limits.client.left_records import LeftRecords
from deployments.patience import USUAL, Patience
from deployments.waiting import Watch, worth_logging

logger = logging.getLogger(__name__)

RECENT_S = 20.0
"""A replica whose last sign-in is older is dead: replicas sign in every five seconds."""
_INTERVAL_S = 10.0


class LeftElsewhere(Watch):
    """Looks for such nodes every ten seconds. `directory` is where records lie on each node.

    `own` returns the address of this replica, as HOST:PORT, if it has one; `living` the addresses of all, sorted.
    """

    def __init__(
        self,
        directory: Path,
        own: Callable[[], str | None],
        living: Callable[[], Awaitable[Sequence[str]]],
        gatekeeper: str = ACTOR_NAME,
        patience: Patience = USUAL,
    ) -> None:
        self._directory = directory
        self._own = own
        self._living = living
        self._gatekeeper = gatekeeper
        self._patience = patience
        self._done: set[str] = set()

    async def look(self) -> int:
        """Hand over what lies on nodes that were not looked at since their replicas left; return how many records.

        A node on which the task fails is looked at again the next time.

        Raises:
            DBAPIError: the register of replicas cannot be reached.
            RayError: Ray's head cannot be reached.
        """
        living = await self._living()
        if self._own() not in living[:1]:
            self._done.clear()
            return 0
        nodes = nodes_without(living, await asyncio.to_thread(ray.nodes))
        self._done &= nodes
        num_records = 0
        for node in sorted(nodes - self._done):
            try:
                num_records += await self._hand_over_on(node)
            except (RayError, TimeoutError) as error:
                logger.info("Records on the node %s are not handed over yet: %s", node, type(error).__name__)
            else:
                self._done.add(node)
        return num_records

    async def _hand_over_on(self, node: str) -> int:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": there}
        task = ray.remote(hand_over_here).options(**options).remote(self._directory, self._gatekeeper, self._patience)
        try:
            num_records: int = await asyncio.wait_for(task, 3 * self._patience.hand_over_s)  # Its process starts first.
        except TimeoutError:
            ray.cancel(task)
            raise
        return num_records

    async def _keep(self) -> None:
        num_failures = 0
        while True:
            await asyncio.sleep(_INTERVAL_S)
            try:
                if num_records := await self.look():
                    logger.info("%d request records on nodes without a replica were handed over.", num_records)
                num_failures = 0
            except Exception as error:  # The database or the head is away, in one of many ways.
                num_failures += 1
                if worth_logging(num_failures):
                    logger.warning("Nodes with left records cannot be looked for: %s", type(error).__name__)


def nodes_without(living: Iterable[str], nodes: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the nodes that could have an ingress replica and have none, given Ray's list of nodes.

    A node that offers no CPU has none. `living` are the addresses of the replicas, as HOST:PORT.
    """
    hosts = {address.rpartition(":")[0].strip("[]") for address in living}
    return {
        node["NodeID"]
        for node in nodes
        if node["Alive"] and node["Resources"].get("CPU") and node["NodeManagerAddress"] not in hosts
    }


def hand_over_here(directory: Path, gatekeeper: str, patience: Patience) -> int:
    """Hand over what lies on this node; return how many records that were.

    Raises:
        TimeoutError: the gatekeeper does not take them.
        OSError: the directory cannot be read.
    """

    async def hand_over() -> int:
        transport = RayTransport(gatekeeper, patience)
        try:
            async with asyncio.timeout(patience.hand_over_s):
                return await LeftRecords(directory, transport).hand_over()
        finally:
            transport.close()

    return asyncio.run(hand_over())
