"""The replicas that hold containers, as the ingress and the batch workers reach them.

Serve chooses the replica of a new container; from then on its place is known, and requests go straight there. Only
`ServeChooser` uses parts of Ray's interface that are not public.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

from ray import serve
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from deployments.channel.client import Channel, ChannelStream, connect
from deployments.channel.errors import ChannelError, Full, Lost, Refused
from deployments.routing.prefix_router import Choice
from deployments.tools.code_interpreter.messages import (
    CodeRun,
    ContainerError,
    ContainerFile,
    ContainerFileMissing,
    ContainerGone,
    ContainerRefused,
    InterpreterAway,
    Place,
    file_of,
)

Choose = Callable[[frozenset[str]], Awaitable[tuple[str, Place]]]
"""Returns the id and the place of a replica, none of those given unless there is no other."""

_MAX_TRIES = 3
_CHOOSE_TIMEOUT_S = 10.0
_ABLE_S = 60.0
_ENDED_THERE = "The container has ended: the replica that held it is gone."
_CODES: dict[str | None, type[ContainerError]] = {
    "container_gone": ContainerGone,
    "container_file_missing": ContainerFileMissing,
    "container_refused": ContainerRefused,
}


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
        """Check that containers can be made at all; the result holds for a minute.

        Raises:
            InterpreterAway: they cannot; its message is the reason.
        """
        now = asyncio.get_running_loop().time()
        if now < self._able_until:
            return
        _, place = await self._choose(frozenset())
        try:
            await self._ask(place, {"operation": "status"})
        except ContainerGone:  # That replica is on its way out; another one will be asked.
            return
        self._able_until = now + _ABLE_S

    async def create(self, container_id: str, idle_s: float) -> Place:
        """Make a container on one of the replicas; return its place.

        Raises:
            InterpreterAway: no replica can make one.
        """
        excluded: set[str] = set()
        refusal: ContainerError = InterpreterAway("No container can be had at the moment.")
        for _ in range(_MAX_TRIES):
            replica_id, place = await self._choose(frozenset(excluded))
            if replica_id in excluded:
                break
            excluded.add(replica_id)
            try:
                await self._ask(place, {"operation": "create", "container": container_id, "idle_s": idle_s})
            except (ContainerGone, InterpreterAway) as error:
                refusal = error
                continue
            except asyncio.CancelledError:  # It may exist by now, and would be left over.
                ending = asyncio.create_task(self._end_quietly(place, container_id))
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)
                raise
            return place
        raise InterpreterAway(refusal.message)

    async def run(self, place: Place, container_id: str, code: str) -> CodeRun:
        """Run code in a container; cancelling this interrupts the code."""
        header = {"operation": "run", "container": container_id}
        images, summary = await self._ask(place, header, code.encode("utf-8", "replace"))
        named = list(zip(summary["images"], images, strict=True))
        return CodeRun(
            summary["status"], summary["logs"], summary["reason"], named, [file_of(one) for one in summary["files"]]
        )

    async def check(self, place: Place, container_id: str) -> None:
        """Check that the container is there; counts as a use of it."""
        await self._ask(place, {"operation": "check", "container": container_id})

    async def list_files(self, place: Place, container_id: str) -> list[ContainerFile]:
        """Return the files of a container."""
        _, summary = await self._ask(place, {"operation": "list", "container": container_id})
        return [file_of(one) for one in summary["files"]]

    async def read(self, place: Place, container_id: str, file_id: str) -> AsyncIterator[bytes]:
        """Yield a file's content, each piece when it is asked for.

        Raises:
            ContainerFileMissing: there is no such file.
        """
        header = {"operation": "read", "container": container_id, "file": file_id}
        offset = 0
        while True:
            pieces, _ = await self._ask(place, {**header, "offset": offset})
            piece = b"".join(pieces)
            if not piece:
                return
            offset += len(piece)
            yield piece

    async def write(
        self, place: Place, container_id: str, path: str, offset: int, piece: bytes, *, is_last: bool
    ) -> ContainerFile | None:
        """Write a piece of a file; return the file when it was the last piece.

        Raises:
            ContainerRefused: it cannot be written there.
        """
        header = {"operation": "write", "container": container_id, "path": path, "offset": offset, "is_last": is_last}
        _, summary = await self._ask(place, header, piece)
        return file_of(summary["file"]) if summary["file"] is not None else None

    async def remove(self, place: Place, container_id: str, file_id: str) -> None:
        """Delete a file.

        Raises:
            ContainerFileMissing: there is no such file.
        """
        await self._ask(place, {"operation": "remove", "container": container_id, "file": file_id})

    async def end(self, place: Place, container_id: str) -> None:
        """End a container."""
        await self._ask(place, {"operation": "end", "container": container_id})

    async def _end_quietly(self, place: Place, container_id: str) -> None:
        with suppress(ContainerError):
            await self.end(place, container_id)

    async def _ask(self, place: Place, header: dict[str, Any], body: bytes = b"") -> tuple[list[bytes], dict[str, Any]]:
        """Return the pieces and the summary of an answer."""
        stream = await self._open(place, header, body)
        pieces: list[bytes] = []
        try:
            while more := await stream.read():
                pieces += more
        except ChannelError as error:
            raise _translated(error) from None
        finally:
            stream.cancel()  # Harmless when the answer is complete; otherwise it interrupts the code.
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
            return _CODES.get(error.code, InterpreterAway)(error.message)
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
        """Return the id and the place of a replica.

        Raises:
            InterpreterAway: there is none.
        """
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
