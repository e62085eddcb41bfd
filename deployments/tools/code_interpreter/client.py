"""The replicas that hold containers, as the ingress and the batch workers reach them.

Serve chooses the replica of a new container. From then on its address is known, and requests go straight there. Only
`ServeChooser` uses private parts of Ray's interface.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

from ray import serve
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from deployments.channel.client import Channel, ChannelStream, connect
from deployments.channel.errors import ChannelError, Full, Lost, Refused
from deployments.routing.placement import Choice
from deployments.tools.code_interpreter.messages import (
    CODES,
    CodeRun,
    ContainerError,
    ContainerFile,
    ContainerGone,
    InterpreterAway,
    Place,
    file_of,
)

Choose = Callable[[frozenset[str]], Awaitable[tuple[str, Place]]]
"""Returns the id and the place of a replica; one of the given ids only if there is no other replica."""

_MAX_TRIES = 3
_CHOOSE_TIMEOUT_S = 10.0
_ABLE_S = 60.0
_ENDED_THERE = "The container has ended: the replica that held it is gone."


class RemoteHosts:
    """The replicas of the code interpreter, over the side channel.

    Every method with a `container_id`, except `create`, raises ContainerGone if the container no longer exists.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._channels: dict[str, Channel] = {}
        self._able_until = float("-inf")
        self._endings: set[asyncio.Task[None]] = set()

    async def check_able(self) -> None:
        """Raise InterpreterAway if no containers can be created, InterpreterOff if that stays so.

        The result holds for a minute.
        """
        now = asyncio.get_running_loop().time()
        if now < self._able_until:
            return
        _, place = await self._choose(frozenset())
        try:
            await self._ask(place, "status")
        except ContainerGone:  # That replica is shutting down; another one will be asked.
            return
        self._able_until = now + _ABLE_S

    async def create(self, container_id: str, idle_s: float) -> Place:
        """Create a container on one of the replicas and return its place, or raise InterpreterAway."""
        excluded: set[str] = set()
        refusal = InterpreterAway("No container can be had at the moment.")
        for _ in range(_MAX_TRIES):
            replica_id, place = await self._choose(frozenset(excluded))
            if replica_id in excluded:
                break
            excluded.add(replica_id)
            try:
                await self._ask(place, "create", container_id, idle_s=idle_s)
            except ContainerGone as error:
                refusal = InterpreterAway(error.message)
                continue
            except InterpreterAway as error:
                refusal = error
                continue
            except asyncio.CancelledError:  # The container may exist by now; end it.
                ending = asyncio.create_task(self._end_quietly(place, container_id))
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)
                raise
            return place
        raise refusal

    async def run(self, place: Place, container_id: str, code: str) -> CodeRun:
        """Run code in a container; cancelling this interrupts the code."""
        images, summary = await self._ask(place, "run", container_id, code.encode("utf-8", "replace"))
        named = list(zip(summary["images"], images, strict=True))
        return CodeRun(
            summary["status"], summary["logs"], summary["reason"], named, [file_of(one) for one in summary["files"]]
        )

    async def check(self, place: Place, container_id: str) -> None:
        """Check that the container is there; counts as a use of it."""
        await self._ask(place, "check", container_id)

    async def list_files(self, place: Place, container_id: str) -> list[ContainerFile]:
        """Return the files of a container."""
        _, summary = await self._ask(place, "list", container_id)
        return [file_of(one) for one in summary["files"]]

    async def read(self, place: Place, container_id: str, file_id: str) -> AsyncIterator[bytes]:
        """Yield a file's content as the caller reads it, or raise ContainerFileMissing."""
        offset = 0
        while True:
            pieces, _ = await self._ask(place, "read", container_id, file=file_id, offset=offset)
            piece = b"".join(pieces)
            if not piece:
                return
            offset += len(piece)
            yield piece

    async def write(
        self, place: Place, container_id: str, path: str, offset: int, piece: bytes, *, is_last: bool
    ) -> ContainerFile | None:
        """Write a piece of a file, or raise ContainerRefused; return the file after the last piece."""
        _, summary = await self._ask(place, "write", container_id, piece, path=path, offset=offset, is_last=is_last)
        return file_of(summary["file"]) if summary["file"] is not None else None

    async def remove(self, place: Place, container_id: str, file_id: str) -> None:
        """Delete a file, or raise ContainerFileMissing."""
        await self._ask(place, "remove", container_id, file=file_id)

    async def end(self, place: Place, container_id: str) -> None:
        """End a container."""
        await self._ask(place, "end", container_id)

    async def _end_quietly(self, place: Place, container_id: str) -> None:
        with suppress(ContainerError):
            await self.end(place, container_id)

    async def _ask(
        self, place: Place, operation: str, container_id: str = "", body: bytes = b"", **fields: Any
    ) -> tuple[list[bytes], dict[str, Any]]:
        """Return the pieces and the summary of an answer, or raise a ContainerError."""
        stream = await self._open(place, {"operation": operation, "container": container_id, **fields}, body)
        pieces: list[bytes] = []
        try:
            while more := await stream.read():
                pieces += more
        except ChannelError as error:
            raise _translated(error) from None
        finally:
            stream.cancel()  # Interrupts the code, unless the answer is complete.
        return pieces, stream.summary

    async def _open(self, place: Place, header: dict[str, Any], body: bytes) -> ChannelStream:
        secret = place["secret"]
        try:
            channel = self._channels.get(secret)
            if channel is None or not channel.is_open:
                channel = await connect(place, lambda: None)
                known = self._channels.setdefault(secret, channel)
                if known is not channel and known.is_open:  # Another request has connected meanwhile.
                    channel.close()
                    channel = known
                self._channels[secret] = channel
            return channel.open(header, body)
        except ChannelError as error:
            self._channels.pop(secret, None)
            raise _translated(error) from None

    def close(self) -> None:
        """Close every connection."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


def _translated(error: ChannelError) -> ContainerError:
    match error:
        case Refused():
            return CODES.get(error.code or "", InterpreterAway)(error.message)
        case Full():
            return InterpreterAway(error.message)
        case Lost():
            return ContainerGone(_ENDED_THERE)
        case _:
            return InterpreterAway("The code interpreter failed.")


class ServeChooser:
    """Has Serve choose a replica of the code interpreter for a new container."""

    def __init__(self, handle: serve.handle.DeploymentHandle) -> None:
        self._handle = handle
        self._num_asked: dict[str, int] = {}

    async def __call__(self, excluded: frozenset[str]) -> tuple[str, Place]:
        """Return the id and the place of a replica, or raise InterpreterAway."""
        choice = Choice(None, excluded, lambda replica_id: self._num_asked.get(replica_id, 0))
        try:
            async with (
                asyncio.timeout(_CHOOSE_TIMEOUT_S),
                self._handle.choose_replica(choice, _reserve=False) as selection,
            ):
                replica_id = str(selection.replica_id)
                self._num_asked[replica_id] = self._num_asked.get(replica_id, 0) + 1
                return replica_id, cast(Place, selection.replica_metadata["channel"])
        except (TimeoutError, BackPressureError, DeploymentUnavailableError):
            raise InterpreterAway("The code interpreter is not available at the moment.") from None
