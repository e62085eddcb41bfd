"""Engines over the side channel: Serve chooses the replica, the channel carries the answer.

Runs in the ingress; it never imports vLLM. Only `_choose` uses private parts of Ray's interface.
"""

import asyncio
import contextlib
import logging
from typing import Any, cast

from ray import serve
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from deployments.channel.client import Address, Channel, ChannelStream, connect
from deployments.channel.errors import ChannelError
from deployments.models.client.stream import RemoteStream
from deployments.models.contract.engine import EngineRequest, EngineStream, ModelCard
from deployments.models.contract.errors import Overloaded, from_channel
from deployments.patience import USUAL, Patience
from deployments.routing.placement import Choice, place

logger = logging.getLogger(__name__)


class RemoteEngine:
    """A model deployment as this ingress replica sees it: a Serve handle, and a channel to each replica in use."""

    def __init__(
        self,
        card: ModelCard,
        handle: serve.handle.DeploymentHandle,
        wait_s: float,
        resume_wait_s: float = 60.0,
        patience: Patience = USUAL,
    ) -> None:
        """A request waits `wait_s` seconds for its first replica, and `resume_wait_s` for the next if that one dies."""
        self.card = card
        self.resume_wait_s = resume_wait_s
        self.patience = patience
        self.num_moved = 0
        """How often a request lost the replica that ran it."""
        self._handle = handle
        self._wait_s = wait_s
        self._channels: dict[str, Channel] = {}
        self._addresses: dict[str, Address] = {}
        self._avoided: dict[str, float] = {}
        self._connecting: dict[str, asyncio.Task[Channel]] = {}

    def run(self, request: EngineRequest) -> EngineStream:
        """Return the answer's stream; nothing happens until it is iterated."""
        return RemoteStream(self, request)

    async def open(self, request: EngineRequest, header: dict[str, Any], tried: list[str]) -> ChannelStream:
        """Send a request to the best replica that is not in `tried`, and add it to the end of `tried`.

        Raises:
            Overloaded: no replica came up in time, or all have been tried.
            EngineDied: the chosen replica cannot be reached.
        """
        now = asyncio.get_running_loop().time()
        self._avoided = {replica_id: until for replica_id, until in self._avoided.items() if until > now}
        choice = Choice(request.affinity, frozenset((*tried, *self._avoided)), self.num_open)
        replica_id, address = await self._choose(choice, tried)
        if replica_id in tried and self._avoided:
            choice = Choice(request.affinity, frozenset(tried), self.num_open)
            replica_id, address = await self._choose(choice, tried)
        if replica_id in tried:
            raise Overloaded("The engine is currently overloaded, please try again later", retry_after_s=1.0)
        tried.append(replica_id)
        try:
            channel = self._channels.get(replica_id) or await self._connect(replica_id, address)
            return channel.open(header, request.body)
        except ChannelError as error:
            self._avoid(replica_id)
            raise from_channel(error) from error

    async def wait_for_replica(self) -> None:
        """Return once there is a replica; does not wake a model that is scaled to zero."""
        choice = Choice(None, frozenset(), self.num_open)
        while True:
            try:
                async with self._handle.choose_replica(choice, _reserve=False):
                    return
            except (BackPressureError, DeploymentUnavailableError):
                await asyncio.sleep(self.patience.starting_s)

    def is_connected(self, replica_id: str) -> bool:
        """Return whether the connection to a replica is open."""
        return replica_id in self._channels

    def num_open(self, replica_id: str) -> int:
        """Return how many of this process's requests run on a replica."""
        channel = self._channels.get(replica_id)
        return channel.num_open if channel is not None else 0

    async def _choose(self, choice: Choice, tried: list[str]) -> tuple[str, Address]:
        """Return the replica that Serve chooses, or a connected replica if Serve has none left.

        A recovering controller may publish a table without running replicas.
        """
        try:
            with contextlib.suppress(TimeoutError):
                chosen = await self._choose_within(self.patience.choose_s, choice, _reserve=False)
                return self._choose_connected(choice, tried) or chosen if chosen[0] in tried else chosen
            return self._choose_connected(choice, tried) or await self._wait_and_choose(choice)
        except (BackPressureError, DeploymentUnavailableError) as error:
            if connected := self._choose_connected(choice, tried):
                return connected
            raise Overloaded(f"The model `{self.card.id}` is not available at the moment.", 5.0) from error

    def _choose_connected(self, choice: Choice, tried: list[str]) -> tuple[str, Address] | None:
        connected = [replica_id for replica_id in self._channels if replica_id not in tried]
        if not connected:
            return None
        replica_id = place(choice, connected)
        return replica_id, self._addresses[replica_id]

    async def _wait_and_choose(self, choice: Choice) -> tuple[str, Address]:
        """Choose a replica when there may be none.

        A waiting choice without a reservation is not counted, and so never wakes a model that is scaled to zero. A
        choice with one does, but first asks the replicas, and busy ones may not answer for minutes. So both wait, and
        the first to end decides. Ray's own LLM router passes `_reserve=False` for requests outside its handles:
        otherwise every choice costs a round trip to the replica (380 instead of 1,000 requests a second). The replica
        enforces its own bound.
        """
        choosing = asyncio.create_task(self._choose_within(self._wait_s, choice, _reserve=False))
        waking = asyncio.create_task(self._choose_within(self._wait_s, choice))
        try:
            done, _ = await asyncio.wait({choosing, waking}, return_when=asyncio.FIRST_COMPLETED)
            return (choosing if choosing in done else waking).result()
        except TimeoutError:
            message = f"The model `{self.card.id}` is starting; no replica was ready within {self._wait_s:g} s."
            raise Overloaded(message, retry_after_s=10.0) from None
        finally:
            choosing.cancel()
            waking.cancel()
            await asyncio.gather(choosing, waking, return_exceptions=True)

    async def _choose_within(self, timeout_s: float, choice: Choice, **options: bool) -> tuple[str, Address]:
        async with asyncio.timeout(timeout_s), self._handle.choose_replica(choice, **options) as selection:
            return selection.replica_id, cast(Address, selection.replica_metadata["channel"])

    async def _connect(self, replica_id: str, address: Address) -> Channel:
        task = self._connecting.get(replica_id)
        if task is None:  # The first request connects, the others wait for it.
            connecting = connect(address, lambda: self._forget(replica_id), self.patience)
            task = self._connecting[replica_id] = asyncio.get_running_loop().create_task(connecting)
            task.add_done_callback(lambda _: self._connecting.pop(replica_id, None))
        channel = await asyncio.shield(task)
        if channel.is_open:
            self._channels[replica_id], self._addresses[replica_id] = channel, address
        return channel

    def _forget(self, replica_id: str) -> None:
        if self._channels.pop(replica_id, None) is not None:
            del self._addresses[replica_id]
            self._avoid(replica_id)

    def _avoid(self, replica_id: str) -> None:
        # Serve notices only later that a replica, or its node, is gone; ask others first for a while.
        self._avoided[replica_id] = asyncio.get_running_loop().time() + self.patience.avoid_s

    def close(self) -> None:
        """Close every channel."""
        for channel in list(self._channels.values()):
            channel.close()
