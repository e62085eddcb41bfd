"""The containers of one process: each a sandbox with its files, until it is idle for too long or deleted.

Nothing of a container is ever written to disk: its content is in memory, and ends with its processes.
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
    InterpreterOff,
    Source,
)
from deployments.tools.sandbox.frames import PIECE_BYTES, SandboxDied, SandboxRefused
from deployments.tools.sandbox.host import WarmPool
from deployments.tools.sandbox.root import SandboxUnavailable
from deployments.tools.sandbox.sandbox import Sandbox
from deployments.waiting import end, keep_on

_LOOK_EVERY_S = 2.0
_GONE = "The container has ended; everything in it is gone."


@dataclass(slots=True)
class Container:
    """One container, with its known files by path, each with the time of its last change in nanoseconds."""

    sandbox: Sandbox
    idle_s: float
    used_at: float
    num_running: int = 0
    files: dict[str, tuple[ContainerFile, int]] = field(default_factory=dict)


class Containers:
    """The containers of one process. `problem` is the reason if its host cannot build sandboxes.

    Every method with a `container_id`, except `create` and `end`, raises ContainerGone if there is no such container.
    """

    def __init__(
        self,
        pool: WarmPool,
        max_containers: int,
        problem: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._pool = pool
        self._max_containers = max_containers
        self._problem = problem
        self._clock = clock
        self._wall = wall
        self._held: dict[str, Container] = {}
        self._num_coming = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    @property
    def num_containers(self) -> int:
        """The number of containers, including those that are being created."""
        return len(self._held) + self._num_coming

    def open(self) -> None:
        """Start to prepare sandboxes, and to end idle containers."""
        self._pool.open()
        self._looking = asyncio.create_task(keep_on("The look at idle containers", self._look))

    async def create(self, container_id: str, idle_s: float) -> None:
        """Create a container; raises InterpreterAway if all places are taken, InterpreterOff if it cannot be built."""
        self.check_able()
        if self.num_containers >= self._max_containers:
            raise InterpreterAway("All places for containers are taken. Please retry your request later.")
        self._num_coming += 1
        try:
            sandbox = await self._pool.take()
        except SandboxUnavailable as error:
            raise InterpreterOff(str(error)) from None
        finally:
            self._num_coming -= 1
        self._held[container_id] = Container(sandbox, idle_s, self._clock())

    def check_able(self) -> None:
        """Raise InterpreterOff if this host cannot build sandboxes."""
        if self._problem is not None:
            raise InterpreterOff(self._problem)

    async def run(self, container_id: str, code: str) -> CodeRun:
        """Run code in a container; cancelling this interrupts the code."""
        container = self._find(container_id)
        container.num_running += 1
        try:
            result = await container.sandbox.run(code)
            files = await self._written(container, "assistant") if container.sandbox.is_running else []
        except SandboxDied:
            result.status, files = "died", []
        finally:
            container.num_running -= 1
            container.used_at = self._clock()
        if not container.sandbox.is_running:
            await self.end(container_id)
        return CodeRun(result.status, result.logs, result.reason, result.images, files)

    async def list_files(self, container_id: str) -> list[ContainerFile]:
        """Return the files of a container."""
        container = self._find(container_id)
        await self._look_at(container_id, container)
        return [file for file, _ in container.files.values()]

    async def read(self, container_id: str, file_id: str, offset: int) -> bytes:
        """Return a piece of a file, at most a mebibyte and b"" at its end, or raise ContainerFileMissing."""
        container = self._find(container_id)
        if offset == 0:
            await self._look_at(container_id, container)
        file = next((file for file, _ in container.files.values() if file.file_id == file_id), None)
        if file is None:
            raise ContainerFileMissing("The container has no such file.")
        try:
            return await container.sandbox.read(file.path, offset, min(PIECE_BYTES, max(0, file.num_bytes - offset)))
        except SandboxDied:
            raise ContainerGone(_GONE) from None
        except SandboxRefused:
            raise ContainerFileMissing("The container has no such file.") from None

    async def write(
        self, container_id: str, path: str, offset: int, piece: bytes, *, is_last: bool
    ) -> ContainerFile | None:
        """Write a piece of a file, or raise ContainerRefused; return the file after the last piece."""
        container = self._find(container_id)
        try:
            await container.sandbox.write(path, offset, piece)
            if not is_last:
                return None
            written = await self._written(container, "user")
        except SandboxDied:
            raise ContainerGone(_GONE) from None
        except SandboxRefused as refused:
            raise ContainerRefused(f"The file could not be written: {refused}") from None
        finally:
            container.used_at = self._clock()
        for file in written:
            if file.path == path:
                return file
        raise ContainerRefused("The file could not be written.")

    async def remove(self, container_id: str, file_id: str) -> None:
        """Delete a file, or raise ContainerFileMissing."""
        container = self._find(container_id)
        await self._look_at(container_id, container)
        for path, (file, _) in container.files.items():
            if file.file_id == file_id:
                await container.sandbox.remove(path)
                await self._look_at(container_id, container)
                return
        raise ContainerFileMissing("The container has no such file.")

    def check(self, container_id: str) -> None:
        """Check that there is such a container; counts as a use of it."""
        self._find(container_id)

    async def end(self, container_id: str) -> None:
        """End a container if there is one, even if this is cancelled."""
        container = self._held.pop(container_id, None)
        if container is not None:
            ending = asyncio.create_task(container.sandbox.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.shield(ending)

    async def close(self) -> None:
        """End everything."""
        if self._looking is not None:
            await end(self._looking)
        await self._pool.close()
        for container_id in list(self._held):
            await self.end(container_id)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _find(self, container_id: str) -> Container:
        container = self._held.get(container_id)
        if container is None or not container.sandbox.is_running:
            raise ContainerGone(_GONE)
        container.used_at = self._clock()
        return container

    async def _look_at(self, container_id: str, container: Container) -> None:
        """Update the known files of a container."""
        try:
            await self._written(container, "assistant")
        except SandboxDied:
            await self.end(container_id)
            raise ContainerGone(_GONE) from None

    async def _written(self, container: Container, source: Source) -> list[ContainerFile]:
        """Update the known files from the work folder; return those that are new or changed."""
        written = []
        found = await container.sandbox.list_files()
        for one in found:
            known, changed_ns = container.files.get(one.path, (None, 0))
            if known is None or changed_ns != one.changed_ns or known.num_bytes != one.num_bytes:
                file_id = known.file_id if known is not None else f"cfile_{secrets.token_hex(16)}"
                created_at = known.created_at if known is not None else self._wall()
                file = ContainerFile(file_id, one.path, one.num_bytes, created_at, source)
                container.files[one.path] = (file, one.changed_ns)
                written.append(file)
        paths = {one.path for one in found}
        container.files = {path: file for path, file in container.files.items() if path in paths}
        return written

    async def _look(self) -> None:
        """End idle containers, and those that use CPU without a call, every few seconds."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.sweep()

    async def sweep(self) -> None:
        """End idle containers, and those that use CPU without a call, now."""
        for container_id, container in list(self._held.items()):
            container.sandbox.check_idle()
            is_idle = not container.num_running and self._clock() - container.used_at > container.idle_s
            if is_idle or not container.sandbox.is_running:
                await self.end(container_id)
