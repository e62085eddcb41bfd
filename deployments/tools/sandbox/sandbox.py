"""One sandbox as the service uses it: code and files go in, results come out, all bounded from this side.

Whatever code inside does, also to the interpreter in its process, appears here as data of bounded size, or as the end
of the sandbox.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from deployments.tools.sandbox.census import Census, any_left, used_inodes
from deployments.tools.sandbox.frames import (
    GONE,
    PIECE_BYTES,
    Frames,
    RunResult,
    SandboxDied,
    SandboxRefused,
    WorkFile,
    is_safe_path,
    printable,
)
from deployments.tools.sandbox.limits import MIB, Limits
from deployments.tools.sandbox.process import START_TIMEOUT_S, SandboxProcess
from deployments.tools.sandbox.root import SCRATCH_FOLDER, WORK_FOLDER, SandboxUnavailable

Answer = TypeVar("Answer")

_WATCH_S = 0.2
_ANSWER_S = 20.0
_END_TRIES, _END_EVERY_S = 200, 0.01


class Sandbox:
    """An interpreter in a sandbox, which `SandboxHost` creates; handles one request at a time."""

    def __init__(self, process: SandboxProcess, limits: Limits, census: Census) -> None:
        self._process = process
        self._limits = limits
        self._census = census
        self._frames = Frames(process, max(limits.image_bytes, PIECE_BYTES))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._output = bytearray()
        self._num_printed = 0
        self._reason: str | None = None
        self._interpreter_pid = 0
        self._cpu_s_before = 0.0
        self._asking = asyncio.Lock()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._reason is None and self._process.is_running

    @property
    def init_pid(self) -> int:
        """The process id, outside, of the first process inside."""
        return self._process.init_pid

    async def wait_ready(self) -> None:
        """Return when the interpreter takes requests, or raise SandboxUnavailable."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                head, _ = await self._frames.read()
        except (TimeoutError, SandboxDied):
            self._drain()
            output = self._output[-2000:].decode("utf-8", "replace").strip()
            await self.close()
            raise SandboxUnavailable(f"the interpreter did not start: {output or 'no message'}") from None
        taken = self._census.below(self.init_pid, fresh=True)
        self._interpreter_pid, self._cpu_s_before = taken.pids[0], taken.cpu_s
        self._drain()
        asyncio.get_running_loop().add_reader(self._process.output, self._drain)
        if not head.get("ready"):
            self._stop("It did not start as it should.")

    async def run(self, code: str, timeout_s: float | None = None) -> RunResult:
        """Run code and return its result, even if the sandbox ends.

        Cancelling this interrupts the code; if that does not help, the sandbox ends.
        """
        task = self._begin(self._call_alone(code, min(timeout_s or self._limits.call_s, self._limits.call_s)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()  # Only once, even if the caller is cancelled again: the interruption must complete.
            raise

    def _begin(self, work: Coroutine[Any, Any, Answer]) -> "asyncio.Task[Answer]":
        """Return a task that continues when its caller is cancelled: half an exchange would break the sandbox."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Reading it marks the error as retrieved.

    async def _call_alone(self, code: str, timeout_s: float) -> RunResult:
        async with self._asking:
            return await self._call(code, timeout_s)

    async def _call(self, code: str, timeout_s: float) -> RunResult:
        if not self.is_running:
            return RunResult("died", reason=self._reason or GONE)
        result = RunResult()
        self._output.clear()
        self._num_printed = 0
        calling = asyncio.create_task(self._exchange_run(code, result))
        watching = asyncio.create_task(self._watch(calling))
        try:
            done, _ = await asyncio.wait({calling}, timeout=timeout_s)
            if not done:
                result.reason = f"It was interrupted after {timeout_s:g} s."
                await self._interrupt(calling)
            await asyncio.wait({calling})
            with contextlib.suppress(SandboxDied):
                calling.result()
        except asyncio.CancelledError:
            await self._interrupt(calling)
            raise
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            if self.is_running:
                await self._end_leftovers()
                self._cpu_s_before = self._census.below(self.init_pid).cpu_s
        return self._finish(result)

    def _finish(self, result: RunResult) -> RunResult:
        """Return the result with the printed text, made harmless."""
        if self.is_running:
            self._drain()
        else:
            result.status, result.reason = "died", self._reason or GONE
        num_dropped = self._num_printed - len(self._output)
        result.logs = printable(self._output.decode("utf-8", "replace"))
        if num_dropped:
            result.logs += f"\n[{num_dropped} more bytes were printed and dropped.]"
        self._output.clear()
        return result

    async def _exchange_run(self, code: str, result: RunResult) -> None:
        await self._send({"op": "run"}, code.encode("utf-8", "replace"))
        while True:
            head, payload = await self._receive()
            if "image" in head and len(result.images) < self._limits.num_images:
                result.images.append((str(head["image"]), payload))
            elif head.get("done") in ("ok", "error", "interrupted"):
                result.status = head["done"]
                return
            else:
                raise self._stop("It answered what was not asked.")

    async def _interrupt(self, calling: "asyncio.Task[None]") -> None:
        """Interrupt running code as Ctrl-C does; end the sandbox if that does not help."""
        for _ in range(2):
            if calling.done() or not self.is_running:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._interpreter_pid, signal.SIGINT)
            await asyncio.wait({calling}, timeout=self._limits.interrupt_s / 2)
        if not calling.done():
            self._stop("It did not end when it was interrupted.")
            await asyncio.wait({calling})

    async def _watch(self, calling: "asyncio.Task[None]") -> None:
        """End the sandbox when it exceeds a limit; interrupt a call that floods its output."""
        limits = self._limits
        while True:
            await asyncio.sleep(_WATCH_S)
            taken = self._census.below(self.init_pid)
            if taken.num_threads > limits.num_processes:
                self._stop(f"It ran more than {limits.num_processes} processes.")
                return
            if taken.memory_bytes > limits.memory_bytes:
                self._stop(f"It used more than {limits.memory_bytes // MIB} MiB of memory.")
                return
            most = limits.num_inodes
            if sum(used_inodes(self.init_pid, folder, most) for folder in (WORK_FOLDER, SCRATCH_FOLDER)) > most:
                self._stop(f"It made more than {most} files.")
                return
            if self._num_printed > limits.flood_bytes:
                await self._interrupt(calling)
                return

    async def _end_leftovers(self) -> None:
        """End processes that a call has left running."""
        for _ in range(_END_TRIES):
            pids = self._census.below(self.init_pid, fresh=True).pids
            left = [pid for pid in pids if pid != self._interpreter_pid]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                return
            await asyncio.sleep(_END_EVERY_S)
        self._stop("Its processes did not end.")

    def check_idle(self) -> None:
        """End the sandbox if it has worked or grown since its last call: code may leave threads behind."""
        if self._asking.locked() or not self.is_running:
            return
        taken = self._census.below(self.init_pid)
        if taken.cpu_s - self._cpu_s_before > self._limits.idle_cpu_s:
            self._stop("It went on working after its call had ended.")
        elif taken.memory_bytes > self._limits.memory_bytes:
            self._stop(f"It used more than {self._limits.memory_bytes // MIB} MiB of memory.")

    async def list_files(self) -> list[WorkFile]:
        """Return the regular files in the work folder with printable names, without links, or raise SandboxDied."""
        head, _ = await self._ask({"op": "list"})
        try:
            files = [WorkFile(str(path), int(size), int(changed)) for path, size, changed in head["files"]]
        except (KeyError, TypeError, ValueError):
            raise self._stop("It answered what was not asked.") from None
        return [file for file in files[: self._limits.num_files] if is_safe_path(file.path) and file.num_bytes >= 0]

    async def read(self, path: str, offset: int, num_bytes: int = PIECE_BYTES) -> bytes:
        """Return a piece of a regular file, b"" at its end, or raise SandboxDied or SandboxRefused."""
        size = min(num_bytes, PIECE_BYTES)
        _, payload = await self._ask({"op": "read", "path": _checked(path), "offset": offset, "size": size})
        return payload[:size]

    async def write(self, path: str, offset: int, piece: bytes) -> None:
        """Write a piece of a file, a new one at offset 0, or raise SandboxDied or SandboxRefused."""
        head, _ = await self._ask({"op": "write", "path": _checked(path), "offset": offset}, piece)
        if head.get("written") != len(piece):
            raise SandboxRefused("There is no room left in the container.")

    async def remove(self, path: str) -> None:
        """Delete a file if there is one, or raise SandboxDied."""
        with contextlib.suppress(SandboxRefused):
            await self._ask({"op": "remove", "path": _checked(path)})

    async def _ask(self, head: dict[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytes]:
        return await asyncio.shield(self._begin(self._ask_alone(head, payload)))

    async def _ask_alone(self, head: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        async with self._asking:
            if not self.is_running:
                raise SandboxDied(self._reason or GONE)
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._send(head, payload)
                    answer = await self._receive()
            except TimeoutError:
                raise self._stop("It did not answer in time.") from None
        if "error" in answer[0]:
            raise SandboxRefused(printable(str(answer[0]["error"]))[:200])
        return answer

    async def _send(self, head: dict[str, Any], payload: bytes) -> None:
        try:
            await self._frames.write(head, payload)
        except SandboxDied as died:
            raise self._stop(died.reason) from None

    async def _receive(self) -> tuple[dict[str, Any], bytes]:
        try:
            return await self._frames.read()
        except SandboxDied as died:
            raise self._stop(died.reason) from None

    def _drain(self) -> None:
        """Read the output so far; output beyond the limit is only counted."""
        for _ in range(16):
            if self._process.output < 0:
                return
            try:
                piece = os.read(self._process.output, 65536)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                asyncio.get_running_loop().remove_reader(self._process.output)
                return
            self._num_printed += len(piece)
            self._output += piece[: max(0, self._limits.output_bytes - len(self._output))]

    def _stop(self, reason: str) -> SandboxDied:
        """End the sandbox; return the error for it."""
        self._reason = self._reason or reason
        self._process.kill()
        return SandboxDied(self._reason)

    async def close(self) -> None:
        """End the sandbox; its content is only in memory, and gone when this returns."""
        self._reason = self._reason or GONE
        pids = {self._interpreter_pid, *self._census.below(self.init_pid, fresh=True).pids} if self.init_pid else set()
        await self._process.end()
        for _ in range(_END_TRIES):  # Linux has ended them all by now; gVisor may need longer.
            if not any_left(pids - {0}):
                break
            await asyncio.sleep(_END_EVERY_S)
        async with self._asking:  # Requests that still wait for an answer fail first.
            self._process.release()


def _checked(path: str) -> str:
    if not is_safe_path(path):
        raise SandboxRefused("This is not the path of a file in the container.")
    return path
