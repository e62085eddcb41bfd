"""The containers that one process holds: each a sandbox with its files, until it is idle for too long or deleted.

Nothing of a container is ever written to a disk: what is in it lies in memory, and is gone with its processes.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deployments.tools.code_interpreter.messages import (
    CodeRun,
    ContainerFile,
    ContainerFileMissing,
    ContainerGone,
    ContainerRefused,
    InterpreterAway,
    Source,
)
from deployments.tools.code_interpreter.pool import WarmPool
from deployments.tools.sandbox.frames import PIECE_BYTES
from deployments.tools.sandbox.results import SandboxDied, SandboxRefused, WorkFile
from deployments.tools.sandbox.root import SandboxUnavailable
from deployments.tools.sandbox.sandbox import Sandbox

_LOOK_EVERY_S = 2.0
UNABLE = "The code interpreter is off: no sandbox can be built on its host. Ask the operator of this service."
_GONE = "The container has ended; everything in it is gone."


@dataclass(slots=True)
class Held:
    """One container. `files` are those that are known of, by path, with when they were last changed."""

    sandbox: Sandbox
    idle_s: float
    used_at: float
    num_running: int = 0
    files: dict[str, tuple[ContainerFile, int]] = field(default_factory=dict)


class Holder:
    """The containers of one process."""

    def __init__(
        self,
        pool: WarmPool,
        max_containers: int,
        is_able: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._pool = pool
        self._max_containers = max_containers
        self._is_able = is_able
        self._clock = clock
        self._wall = wall
        self._held: dict[str, Held] = {}
        self._num_coming = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    @property
    def num_containers(self) -> int:
        """How many containers there are and are about to be."""
        return len(self._held) + self._num_coming

    def open(self) -> None:
        """Begin to make sandboxes ready, and to end those that are idle."""
        self._pool.open()
        self._looking = asyncio.create_task(self._look())

    async def create(self, container_id: str, idle_s: float) -> None:
        """Make a container.

        Raises:
            InterpreterAway: all places are taken, or no sandbox can be built.
        """
        self.check_able()
        if self.num_containers >= self._max_containers:
            raise InterpreterAway("All places for containers are taken. Please retry your request later.")
        self._num_coming += 1
        try:
            sandbox = await self._pool.take()
        except SandboxUnavailable:
            raise InterpreterAway(UNABLE) from None
        finally:
            self._num_coming -= 1
        self._held[container_id] = Held(sandbox, idle_s, self._clock())

    def check_able(self) -> None:
        """Return if containers can be made here at all.

        Raises:
            InterpreterAway: this host cannot build sandboxes.
        """
        if not self._is_able:
            raise InterpreterAway(UNABLE)

    async def run(self, container_id: str, code: str) -> CodeRun:
        """Run code in a container; cancelling this interrupts the code.

        Raises:
            ContainerGone: there is no such container.
        """
        held = self._find(container_id)
        held.num_running += 1
        try:
            result = await held.sandbox.run(code)
            files = await self._written(held, "assistant") if held.sandbox.is_running else []
        except SandboxDied:
            result.status, files = "died", []
        finally:
            held.num_running -= 1
            held.used_at = self._clock()
        if not held.sandbox.is_running:
            await self.end(container_id)
        return CodeRun(result.status, result.logs, result.reason, result.images, files)

    async def list_files(self, container_id: str) -> list[ContainerFile]:
        """Return the files of a container.

        Raises:
            ContainerGone: there is no such container.
        """
        held = self._find(container_id)
        await self._look_at(container_id, held)
        return [file for file, _ in held.files.values()]

    async def read(self, container_id: str, file_id: str, offset: int) -> bytes:
        """Return a piece of a file's content, a mebibyte at most; nothing at its end.

        Raises:
            ContainerGone: there is no such container.
            ContainerFileMissing: there is no such file in it.
        """
        held = self._find(container_id)
        if offset == 0:
            await self._look_at(container_id, held)
        file = next((file for file, _ in held.files.values() if file.file_id == file_id), None)
        if file is None:
            raise ContainerFileMissing("The container has no such file.")
        try:
            return await held.sandbox.read(file.path, offset, min(PIECE_BYTES, max(0, file.num_bytes - offset)))
        except SandboxDied:
            raise ContainerGone(_GONE) from None
        except SandboxRefused:
            raise ContainerFileMissing("The container has no such file.") from None

    async def write(
        self, container_id: str, path: str, offset: int, piece: bytes, *, is_last: bool
    ) -> ContainerFile | None:
        """Write a piece of a file; return the file when it was the last piece.

        Raises:
            ContainerGone: there is no such container.
            ContainerRefused: it cannot be written there.
        """
        held = self._find(container_id)
        try:
            await held.sandbox.write(path, offset, piece)
            if not is_last:
                return None
            written = await self._written(held, "user")
        except SandboxDied:
            raise ContainerGone(_GONE) from None
        except SandboxRefused as refused:
            raise ContainerRefused(f"The file could not be written: {refused}") from None
        finally:
            held.used_at = self._clock()
        for file in written:
            if file.path == path:
                return file
        raise ContainerRefused("The file could not be written.")

    async def remove(self, container_id: str, file_id: str) -> None:
        """Delete a file.

        Raises:
            ContainerGone: there is no such container.
            ContainerFileMissing: there is no such file in it.
        """
        held = self._find(container_id)
        await self._look_at(container_id, held)
        for path, (file, _) in held.files.items():
            if file.file_id == file_id:
                await held.sandbox.remove(path)
                await self._look_at(container_id, held)
                return
        raise ContainerFileMissing("The container has no such file.")

    def check(self, container_id: str) -> None:
        """Return if there is such a container; counts as a use of it.

        Raises:
            ContainerGone: there is none.
        """
        self._find(container_id)

    async def end(self, container_id: str) -> None:
        """End a container; nothing happens where there is none. It ends also when this is cancelled."""
        held = self._held.pop(container_id, None)
        if held is not None:
            ending = asyncio.create_task(held.sandbox.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.shield(ending)

    async def close(self) -> None:
        """End everything."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._pool.close()
        for container_id in list(self._held):
            await self.end(container_id)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _find(self, container_id: str) -> Held:
        held = self._held.get(container_id)
        if held is None or not held.sandbox.is_running:
            raise ContainerGone(_GONE)
        held.used_at = self._clock()
        return held

    async def _look_at(self, container_id: str, held: Held) -> None:
        """Bring what is known of a container's files up to date."""
        try:
            await self._written(held, "assistant")
        except SandboxDied:
            await self.end(container_id)
            raise ContainerGone(_GONE) from None

    async def _written(self, held: Held, source: Source) -> list[ContainerFile]:
        """Take note of what is in the work folder; return the files that are new or changed."""
        written = []
        found = await held.sandbox.list_files()
        for one in found:
            known = held.files.get(one.path)
            if known is None or known[1] != one.changed_ns or known[0].num_bytes != one.num_bytes:
                written.append(self._note(held, one, known[0] if known else None, source))
        paths = {one.path for one in found}
        held.files = {path: file for path, file in held.files.items() if path in paths}
        return written

    def _note(self, held: Held, one: WorkFile, known: ContainerFile | None, source: Source) -> ContainerFile:
        file_id = known.file_id if known is not None else f"cfile_{secrets.token_hex(16)}"
        created_at = known.created_at if known is not None else self._wall()
        file = ContainerFile(file_id, one.path, one.num_bytes, created_at, source)
        held.files[one.path] = (file, one.changed_ns)
        return file

    async def _look(self) -> None:
        """End containers that have not been used for too long, or that work while nobody asked them to."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.sweep()

    async def sweep(self) -> None:
        """End what is to be ended now."""
        for container_id, held in list(self._held.items()):
            held.sandbox.check_idle()
            is_idle = not held.num_running and self._clock() - held.used_at > held.idle_s
            if is_idle or not held.sandbox.is_running:
                await self.end(container_id)
