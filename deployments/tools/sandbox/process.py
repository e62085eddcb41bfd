"""Starts and ends the processes of one sandbox: bubblewrap, which creates the namespaces, and an interpreter in it.

An ordinary user is nobody inside, under that user's own id outside. Root is nobody inside and outside: the sandbox's
user namespace knows root only for as long as it takes to put the file system together. Where `unshare` creates the user
namespace, an ordinary user is the only one in it, has the number 0 there, and gives up every capability for good.
"""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deployments.tools.sandbox.census import num_threads
from deployments.tools.sandbox.limits import Limits
from deployments.tools.sandbox.root import Root, SandboxUnavailable

NOBODY = 65534
_MAX_INFO_BYTES = 4096
_UNTOUCHED_BYTES = 512 * 1024 * 1024
"""Address space for pages that are mapped but never used."""
_MAX_COMPLAINT_BYTES = 2000
_END_S = 5.0
START_TIMEOUT_S = 30.0


class SandboxProcess:
    """The processes of a sandbox. `requests`, `answers` and `output` are this end's descriptors, non-blocking."""

    def __init__(self, bubblewrap: "subprocess.Popen[bytes]", requests: int, answers: int, output: int) -> None:
        self.requests, self.answers, self.output = requests, answers, output
        self.init_pid = 0
        self._bubblewrap = bubblewrap
        self._has_ended = asyncio.Event()
        self._pidfd = -1
        loop = asyncio.get_running_loop()
        try:
            self._pidfd = os.pidfd_open(bubblewrap.pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                bubblewrap.kill()
                bubblewrap.wait()
                raise
            # An older gVisor, which has no such descriptors.
            threading.Thread(target=self._wait_for_end, args=(loop,), daemon=True).start()
        else:
            loop.add_reader(self._pidfd, self._note_end)

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._bubblewrap.wait()
        self._has_ended.set()

    def _wait_for_end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._bubblewrap.wait()
        with contextlib.suppress(RuntimeError):  # The loop is closed, and nothing waits.
            loop.call_soon_threadsafe(self._has_ended.set)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self._has_ended.is_set()

    def kill(self) -> None:
        """End all processes of the sandbox at once: the kernel ends a process namespace with its first process."""
        if not self.is_running:
            return
        with contextlib.suppress(ProcessLookupError):
            if self.init_pid:  # Bubblewrap, which waits for it, then ends by itself.
                os.kill(self.init_pid, signal.SIGKILL)
            else:
                self._bubblewrap.kill()

    async def close(self) -> None:
        """End the sandbox and close its descriptors."""
        await self.end()
        self.release()

    async def end(self) -> None:
        """End the sandbox, and return after its last process."""
        self.kill()
        try:
            await asyncio.wait_for(self._has_ended.wait(), _END_S)
        except TimeoutError:
            self._bubblewrap.kill()
            await self._has_ended.wait()

    def release(self) -> None:
        """Close this end's descriptors; no task may still wait for one, as the kernel reuses the numbers."""
        for descriptor in (self.requests, self.answers, self.output, self._pidfd):
            if descriptor >= 0:
                asyncio.get_running_loop().remove_reader(descriptor)
                asyncio.get_running_loop().remove_writer(descriptor)
                os.close(descriptor)
        self.requests = self.answers = self.output = self._pidfd = -1

    async def adopt(self, info: int, ready: int) -> None:
        """Read the pid of the first process in the namespaces; map its users if only root may."""
        try:
            info_line = await _read_line(info)
            self.init_pid = json.loads(info_line)["child-pid"]
            if os.getuid() == 0:
                _name_users(self.init_pid)
            os.write(ready, b"1")
        except (OSError, ValueError, KeyError):
            raise SandboxUnavailable(f"bubblewrap failed: {self._complaint()}") from None

    def _complaint(self) -> str:
        """Return bubblewrap's error message, which is the output so far."""
        with contextlib.suppress(OSError):
            return os.read(self.output, _MAX_COMPLAINT_BYTES).decode("utf-8", "replace").strip() or "no message"
        return "no message"


class _Pipes:
    """The pipes of a starting sandbox. At the end of the block, all ends are closed that were not handed on."""

    def __init__(self) -> None:
        self._ends: set[int] = set()

    def __enter__(self) -> "_Pipes":
        return self

    def __exit__(self, *error: object) -> None:
        self.close(*self._ends)

    def create(self) -> tuple[int, int]:
        """Return the reading and the writing end of a new pipe."""
        ends = os.pipe()
        self._ends.update(ends)
        return ends

    def hand_on(self, *ends: int) -> None:
        self._ends.difference_update(ends)

    def close(self, *ends: int) -> None:
        for end in ends:
            self._ends.remove(end)
            os.close(end)


async def start_process(root: Root, limits: Limits, seccomp: bytes, preload: Sequence[str]) -> SandboxProcess:
    """Return a sandbox whose interpreter is starting, or raise SandboxUnavailable."""
    process: SandboxProcess | None = None
    with _Pipes() as pipes:
        try:
            requests_in, requests = pipes.create()
            answers, answers_in = pipes.create()
            output, output_in = pipes.create()
            info, info_in = pipes.create()
            ready_in, ready = pipes.create()
            filter_in, filter_out = pipes.create()
            os.write(filter_out, seccomp)  # A few kilobytes: a pipe holds them.
            pipes.close(filter_out)
            settings = _interpreter_settings(root, limits)
            settings |= {"requests": requests_in, "answers": answers_in, "preload": list(preload)}
            arguments = [*root.arguments(limits), "--info-fd", str(info_in), "--seccomp", str(filter_in)]
            arguments += [*_users(root, ready_in), "--", root.python, "-I", "-B", "/python/interpreter.py"]
            theirs = (requests_in, answers_in, info_in, ready_in, filter_in)
            bubblewrap = subprocess.Popen(  # noqa: ASYNC220, S603 - from this thread: the sandbox dies with it.
                [*arguments, json.dumps(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output_in,
                stderr=output_in,
                pass_fds=theirs,
                cwd="/",
                env={},
            )
            for descriptor in (requests, answers, output, info):
                os.set_blocking(descriptor, False)
            process = SandboxProcess(bubblewrap, requests, answers, output)
            pipes.hand_on(requests, answers, output)
            pipes.close(*theirs, output_in)
            await process.adopt(info, ready)
        except BaseException as error:
            if process is not None:
                await process.close()
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"bubblewrap cannot be started: {error.strerror}") from None
            raise
    return process


def _users(root: Root, ready: int) -> list[str]:
    """Return bubblewrap's arguments about users; it waits for a byte on `ready`."""
    if os.getuid() == 0:
        return ["--userns-block-fd", str(ready), "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    if root.unshare is not None:
        return ["--block-fd", str(ready), "--cap-add", "CAP_SETPCAP"]
    return ["--block-fd", str(ready), "--uid", str(NOBODY), "--gid", str(NOBODY)]


def _interpreter_settings(root: Root, limits: Limits) -> dict[str, Any]:
    settings = asdict(limits) | {"is_only_user": root.unshare is not None}
    settings["address_bytes"] = limits.memory_bytes + _UNTOUCHED_BYTES
    if root.unshare is not None:
        # gVisor counts a user's processes in all user namespaces: those of the service, and of a few other sandboxes.
        # Each sandbox is also watched.
        settings["num_processes"] = num_threads() + 4 * limits.num_processes
    return settings


def _name_users(pid: int) -> None:
    """Map two users into a new user namespace: nobody, and root until the file system is built."""
    for kind in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{kind}", "w") as file:
            file.write(f"0 0 1\n{NOBODY} {NOBODY} 1\n")


async def _read_line(descriptor: int) -> bytes:
    info = b""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(START_TIMEOUT_S):
        while b"}" not in info and len(info) < _MAX_INFO_BYTES:
            readable = asyncio.Event()
            loop.add_reader(descriptor, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(descriptor)
            piece = os.read(descriptor, _MAX_INFO_BYTES)
            if not piece:
                break
            info += piece
    return info


def widen(descriptor: int, num_bytes: int) -> None:
    """Enlarge the buffer of a pipe, if the kernel allows it."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, num_bytes)
