"""Hands over the request records of ingress replicas that have died.

Each replica hands over the records of its own node. For nodes without a replica, the replica with the lowest address
runs a task of Ray there, once for as long as the node has no replica. Records may be handed over several times: the
database knows each request by its id.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from typing_extensions import override

from deployments.limits.actor import ACTOR_NAME, RayTransport
from deployments.limits.client.record_journal import OrphanedFile, take_orphaned_files
from deployments.limits.client.request_log import ShippedRequestLog
from deployments.limits.messages import Transport
from deployments.patience import USUAL, Patience
from deployments.waiting import Watch, repeat

logger = logging.getLogger(__name__)

MAX_AGE_S = 86_400.0
"""Older records are dropped: the database keeps the ids of requests for at least a day."""
RECENT_S = 20.0
"""A replica whose last sign-in is older is dead: replicas sign in every five seconds."""
_INTERVAL_S = 3.0
_NODES_INTERVAL_S = 10.0


class OrphanedRecords(Watch):
    """Hands over the orphaned records in `directory` every few seconds."""

    def __init__(self, directory: Path, transport: Transport) -> None:
        self._directory = directory
        self._transport = transport

    async def hand_over(self) -> int:
        """Hand over the records that are there now; return their number.

        Raises:
            OSError: the directory cannot be read.
        """
        found = await asyncio.to_thread(lambda: list(take_orphaned_files(self._directory)))
        try:
            return sum([await self._hand_over(file) for file in found])
        finally:
            for file in found:
                file.close()

    async def _hand_over(self, file: OrphanedFile) -> int:
        log = ShippedRequestLog(self._transport, background=False)
        records = [one for one in file.records if one.at > time.time() - MAX_AGE_S]
        for record in records:
            log.record(record)
        await log.until_kept()
        file.delete()
        return len(records)

    @override
    async def _keep(self) -> None:
        while True:
            try:
                if num_records := await self.hand_over():
                    logger.info("%d request records of a dead replica were handed over.", num_records)
            except OSError as error:
                logger.warning("The records of dead replicas cannot be read: %s", error.strerror)
            await asyncio.sleep(_INTERVAL_S)


class OrphanedNodes(Watch):
    """Looks for nodes without a replica every ten seconds. `directory` has the records on each node.

    `own` returns the address of this replica as HOST:PORT, None while it has none; `living` the addresses of all,
    sorted.
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
        """Hand over the records on nodes that have lost their replicas; return their number.

        A node on which the task fails is tried again the next time.

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
                logger.info("The records on node %s are not handed over yet: %s", node, type(error).__name__)
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

    @override
    async def _keep(self) -> None:
        await asyncio.sleep(_NODES_INTERVAL_S)
        # The database or the head may be away, in one of many ways.
        await repeat("Listing nodes without a replica", _NODES_INTERVAL_S, self._hand_over)

    async def _hand_over(self) -> None:
        if num_records := await self.look():
            logger.info("%d request records on nodes without a replica were handed over.", num_records)


def nodes_without(living: Iterable[str], nodes: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the nodes in Ray's list that could have an ingress replica and have none.

    A node that offers no CPU can have none. `living` are the addresses of the replicas, as HOST:PORT.
    """
    hosts = {address.rpartition(":")[0].strip("[]") for address in living}
    return {
        node["NodeID"]
        for node in nodes
        if node["Alive"] and node["Resources"].get("CPU") and node["NodeManagerAddress"] not in hosts
    }


def hand_over_here(directory: Path, gatekeeper: str, patience: Patience) -> int:
    """Hand over the records on this node; return their number.

    Raises:
        TimeoutError: the gatekeeper does not take them.
        OSError: the directory cannot be read.
    """

    async def hand_over() -> int:
        transport = RayTransport(gatekeeper, patience)
        try:
            async with asyncio.timeout(patience.hand_over_s):
                return await OrphanedRecords(directory, transport).hand_over()
        finally:
            transport.close()

    return asyncio.run(hand_over())
