"""Engines reached over the side channel: Serve chooses the replica, the channel carries the answer.

Runs in the ingress; it never imports vLLM. Only `_choose` uses parts of Ray's interface that are not public.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Final, cast

from ray import serve
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from deployments.channel.client import Address, Channel, ChannelStream, connect
from deployments.channel.errors import ChannelError
from deployments.models.contract.engine import EngineRequest, EngineStream, ModelCard, Summary, Usage
from deployments.models.contract.errors import EngineDied, EngineError, Overloaded, from_channel
from deployments.routing.placement import Choice

logger = logging.getLogger(__name__)

MAX_TRIES: Final = 4
AT_ONCE_S: Final = 0.25
LAST_WORD_S: Final = 2.0
RETRY_S: Final = 1.0


class RemoteEngine:
    """A model deployment as this ingress replica sees it: a Serve handle, and a channel to each replica in use."""

    def __init__(self, card: ModelCard, handle: serve.handle.DeploymentHandle, wait_s: float) -> None:
        """Take a deployment's handle; a request waits `wait_s` seconds at most for a replica to exist."""
        self.card = card
        self._handle = handle
        self._wait_s = wait_s
        self._channels: dict[str, Channel] = {}
        self._connecting: dict[str, asyncio.Task[Channel]] = {}

    def run(self, request: EngineRequest) -> EngineStream:
        """Return the answer's stream; nothing happens until it is iterated."""
        return RemoteStream(self, request)

    async def open(self, request: EngineRequest, header: dict[str, Any], excluded: set[str]) -> ChannelStream:
        """Send a request to the replica that suits it best, none of `excluded` unless there is no other.

        The replica joins `excluded`, so that a second call goes elsewhere.

        Raises:
            Overloaded: no replica came up in time, or all have been tried.
            EngineDied: the replica that was chosen cannot be reached.
        """
        replica_id, address = await self._choose(Choice(request.affinity, frozenset(excluded), self.num_open))
        if replica_id in excluded:
            raise Overloaded("The engine is currently overloaded, please try again later", retry_after_s=1.0)
        excluded.add(replica_id)
        try:
            channel = self._channels.get(replica_id) or await self._connect(replica_id, address)
            return channel.open(header, request.body)
        except ChannelError as error:
            raise from_channel(error) from error

    async def wait_for_replica(self) -> None:
        """Return once there is a replica; waiting wakes no model that is scaled to zero."""
        choice = Choice(None, frozenset(), self.num_open)
        while True:
            try:
                async with self._handle.choose_replica(choice, _reserve=False):
                    return
            except (BackPressureError, DeploymentUnavailableError):
                await asyncio.sleep(RETRY_S)

    def num_open(self, replica_id: str) -> int:
        """Return how many of this process's requests run on a replica."""
        channel = self._channels.get(replica_id)
        return channel.num_open if channel is not None else 0

    async def _choose(self, choice: Choice) -> tuple[str, Address]:
        # `_reserve=False` is what Ray's own LLM router passes for requests that travel outside of its handles:
        # without it every choice costs a round trip to the replica (1,000 against 380 requests a second).
        # The replica enforces its own bound instead.
        try:
            with contextlib.suppress(TimeoutError):
                return await self._choose_within(AT_ONCE_S, choice, _reserve=False)
            return await self._wake_and_choose(choice)
        except TimeoutError:
            raise Overloaded(
                f"The model `{self.card.id}` is starting; no replica was ready within {self._wait_s:g} s.",
                retry_after_s=10.0,
            ) from None
        except (BackPressureError, DeploymentUnavailableError) as error:
            raise Overloaded(f"The model `{self.card.id}` is not available at the moment.", 5.0) from error

    async def _wake_and_choose(self, choice: Choice) -> tuple[str, Address]:
        """Choose a replica where there may be none.

        A choice without a reservation is not counted while it waits, and so never wakes a model that is scaled to
        zero; one with a reservation does, but asks the replicas first, and those that are busy may not answer for
        minutes. So both wait, and the first to end decides.
        """
        choosing = asyncio.create_task(self._choose_within(self._wait_s, choice, _reserve=False))
        waking = asyncio.create_task(self._choose_within(self._wait_s, choice))
        try:
            done, _ = await asyncio.wait({choosing, waking}, return_when=asyncio.FIRST_COMPLETED)
            return (choosing if choosing in done else waking).result()
        finally:
            choosing.cancel()
            waking.cancel()
            await asyncio.gather(choosing, waking, return_exceptions=True)

    async def _choose_within(self, timeout_s: float, choice: Choice, **options: bool) -> tuple[str, Address]:
        async with asyncio.timeout(timeout_s), self._handle.choose_replica(choice, **options) as selection:
            return selection.replica_id, cast(Address, selection.replica_metadata["channel"])

    async def _connect(self, replica_id: str, address: Address) -> Channel:
        task = self._connecting.get(replica_id)
        if task is None:  # The first of many requests connects, the others wait for it.
            connecting = connect(address, lambda: self._forget(replica_id))
            task = self._connecting[replica_id] = asyncio.get_running_loop().create_task(connecting)
            task.add_done_callback(lambda _: self._connecting.pop(replica_id, None))
        channel = await asyncio.shield(task)
        if channel.is_open:
            self._channels[replica_id] = channel
        return channel

    def _forget(self, replica_id: str) -> None:
        self._channels.pop(replica_id, None)

    def close(self) -> None:
        """Close every channel."""
        for channel in list(self._channels.values()):
            channel.close()


class RemoteStream:
    """The answer to one request. Until its first piece has come, another replica may take the request over."""

    def __init__(self, engine: RemoteEngine, request: EngineRequest) -> None:
        self.summary = Summary()
        self._engine = engine
        self._request = request
        self._stream: ChannelStream | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the answer; pieces of a wire answer that arrive together are joined."""
        pieces = await self._start()
        stream = self._stream
        assert stream is not None
        is_joined = self._request.render == "wire"
        try:
            while pieces:
                if is_joined:
                    yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
                else:
                    for piece in pieces:
                        yield piece
                pieces = await _read(stream)
        finally:
            stream.cancel()
            self._take_summary(stream)

    async def _start(self) -> list[bytes]:
        request = self._request
        header = {
            "operation": request.operation,
            "request_id": request.request_id,
            "stream": request.stream,
            "render": request.render,
            "cache_salt": request.cache_salt,
            "priority": request.priority,
            "tells_tokens": request.tells_tokens,
            "written": request.written,
        }
        excluded: set[str] = set()
        refusal: EngineError | None = None
        for _ in range(MAX_TRIES):
            try:
                self._stream = stream = await self._engine.open(request, header, excluded)
                return await _read(stream)
            except (Overloaded, EngineDied) as error:
                # The error of a replica says more than that there is no other replica.
                refusal = refusal if refusal is not None and isinstance(error, Overloaded) else error
                if isinstance(error, Overloaded) and len(excluded) == 0:
                    break
            except asyncio.CancelledError:
                if self._stream is not None:
                    self._stream.cancel()
                raise
        assert refusal is not None
        raise refusal

    def _take_summary(self, stream: ChannelStream) -> None:
        reported = stream.summary
        if "usage" in reported:
            self.summary.usage = Usage(*reported["usage"])
            self.summary.finish_reasons = reported["finish_reasons"]

    async def aclose(self) -> None:
        """Abort the generation if it still runs; `summary` then has its usage so far."""
        if self._stream is not None:
            self._stream.cancel()
            await self._stream.wait_end(LAST_WORD_S)
            self._take_summary(self._stream)


async def _read(stream: ChannelStream) -> list[bytes]:
    try:
        return await stream.read()
    except ChannelError as error:
        raise from_channel(error) from error
