"""The sandboxes of this host: finds out once what it needs to build them, tries it, and keeps some ready."""

import asyncio
import logging
import os
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from deployments.tools.sandbox.census import Census
from deployments.tools.sandbox.frames import PIECE_BYTES
from deployments.tools.sandbox.limits import Limits
from deployments.tools.sandbox.process import NOBODY, start_process, widen
from deployments.tools.sandbox.root import Root, SandboxUnavailable, find_root
from deployments.tools.sandbox.sandbox import Sandbox
from deployments.tools.sandbox.seccomp import UnsupportedMachine, build_filter
from deployments.waiting import end

DEFAULT_PACKAGES = ("numpy", "pandas", "matplotlib")
_PROBE = """
import errno, os
try:
    os.memfd_create("probe")
except OSError as error:
    print(os.getuid(), os.getgid(), errno.errorcode[error.errno])
"""


class SandboxHost:
    """Creates equal sandboxes."""

    def __init__(self, root: Root, limits: Limits, seccomp: bytes, preload: Sequence[str]) -> None:
        self.limits = limits
        self.census = Census()
        self._root = root
        self._seccomp = seccomp
        self._preload = tuple(preload)

    @property
    def inner_id(self) -> int:
        """The id of the user and the group of code in a sandbox."""
        return NOBODY if self._root.unshare is None else 0

    async def start(self) -> Sandbox:
        """Return a new sandbox, or raise SandboxUnavailable."""
        process = await start_process(self._root, self.limits, self._seccomp, self._preload)
        widen(process.output, PIECE_BYTES)
        widen(process.answers, PIECE_BYTES)
        sandbox = Sandbox(process, self.limits, self.census)
        try:
            await sandbox.wait_ready()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox


async def prepare_host(
    limits: Limits | None = None,
    packages: Sequence[str] = DEFAULT_PACKAGES,
    preload: Sequence[str] = (),
    *,
    has_shell: bool = False,
) -> SandboxHost:
    """Return this host once it has built a sandbox, or raise SandboxUnavailable with the reason."""
    try:
        seccomp = build_filter()
    except UnsupportedMachine as error:
        raise SandboxUnavailable(str(error)) from None
    reasons = []
    for root in _ways(find_root(packages, has_shell=has_shell)):
        host = SandboxHost(root, limits or Limits(), seccomp, preload)
        try:
            await _check(host)
        except SandboxUnavailable as error:
            reasons.append(str(error))
        else:
            return host
    if os.getuid() == 0:
        reasons.append("an ordinary user may be able to where root is not, as under gVisor: run the service as one")
    raise SandboxUnavailable("; ".join(dict.fromkeys(reasons)))


def _ways(root: Root) -> Iterator[Root]:
    """Yield the ways to create a sandbox, the best one first.

    Under gVisor bubblewrap fails on its own network namespace, whose loopback is up already
    (https://github.com/google/gvisor/issues/13438). Root only has the first way, as it cannot become nobody in the
    other.
    """
    yield root
    unshare = shutil.which("unshare")
    if unshare is not None and os.getuid() != 0:
        yield replace(root, unshare=unshare)


async def _check(host: SandboxHost) -> None:
    """Raise SandboxUnavailable unless code in a sandbox runs as the right user and with filtered system calls."""
    sandbox = await host.start()
    try:
        result = await sandbox.run(_PROBE)
    finally:
        await sandbox.close()
    if result.logs.strip() != f"{host.inner_id} {host.inner_id} EPERM":
        raise SandboxUnavailable("code in a sandbox is not who it should be, or its system calls are not filtered")


logger = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE_S = 5.0


class WarmPool:
    """Keeps `num_warm` sandboxes ready; creates new ones one at a time."""

    def __init__(self, start: Callable[[], Awaitable[Sandbox]], num_warm: int) -> None:
        self._start = start
        self._num_warm = num_warm
        self._ready: deque[Sandbox] = deque()
        self._wanted = asyncio.Event()
        self._refilling: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start to create sandboxes."""
        self._wanted.set()
        self._refilling = asyncio.create_task(self._refill())

    async def take(self) -> Sandbox:
        """Return an unused sandbox, a warm one if possible, or raise SandboxUnavailable."""
        while self._ready:
            sandbox = self._ready.popleft()
            self._wanted.set()
            if sandbox.is_running:
                return sandbox
            await sandbox.close()
        return await self._start()

    async def _refill(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while len(self._ready) < self._num_warm:
                try:
                    self._ready.append(await self._start())
                except Exception as error:
                    logger.warning("A sandbox could not be made ready: %s", error)
                    await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)

    async def close(self) -> None:
        """End every sandbox that was not taken."""
        if self._refilling is not None:
            await end(self._refilling)
        while self._ready:
            await self._ready.popleft().close()
