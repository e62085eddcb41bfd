"""Finds once what this host needs to build sandboxes, and tries it."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

from deployments.tools.sandbox.census import Census
from deployments.tools.sandbox.limits import Limits
from deployments.tools.sandbox.process import NOBODY
from deployments.tools.sandbox.root import Root, SandboxUnavailable, find_root
from deployments.tools.sandbox.sandbox import Sandbox, start_sandbox
from deployments.tools.sandbox.seccomp import UnsupportedMachine, build_filter

DEFAULT_PACKAGES = ("numpy", "pandas", "matplotlib")
_PROBE = """
import errno, os
try:
    os.memfd_create("probe")
except OSError as error:
    print(os.getuid(), os.getgid(), errno.errorcode[error.errno])
"""


class SandboxHost:
    """Makes sandboxes that are all alike."""

    def __init__(self, root: Root, limits: Limits, seccomp: bytes, preload: Sequence[str]) -> None:
        self.limits = limits
        self.census = Census()
        self._root = root
        self._seccomp = seccomp
        self._preload = tuple(preload)

    @property
    def inner_id(self) -> int:
        """The number that the user and the group of code have in a sandbox."""
        return NOBODY if self._root.unshare is None else 0

    async def start(self) -> Sandbox:
        """Return a new sandbox.

        Raises:
            SandboxUnavailable: this host cannot build it, or not any more.
        """
        return await start_sandbox(self._root, self.limits, self._seccomp, self.census, self._preload)


async def prepare_host(
    limits: Limits | None = None, packages: Sequence[str] = DEFAULT_PACKAGES, preload: Sequence[str] = ()
) -> SandboxHost:
    """Return what makes sandboxes here, after one has been made.

    Raises:
        SandboxUnavailable: this host cannot build sandboxes; says why.
    """
    try:
        seccomp = build_filter()
    except UnsupportedMachine as error:
        raise SandboxUnavailable(str(error)) from None
    reasons = []
    for root in _ways(find_root(packages)):
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
    """Yield the ways to make a sandbox, the best one first.

    Under gVisor bubblewrap fails over the network namespace that it makes itself, whose loopback is up already
    (https://github.com/google/gvisor/issues/13438). Root, who could not become nobody in the second way, has the first.
    """
    yield root
    unshare = shutil.which("unshare")
    if unshare is not None and os.getuid() != 0:
        yield replace(root, unshare=unshare)


async def _check(host: SandboxHost) -> None:
    """Make a sandbox, and check that its code runs as the right user and with filtered system calls.

    Raises:
        SandboxUnavailable: it cannot be made, or lacks a protection.
    """
    sandbox = await host.start()
    try:
        result = await sandbox.run(_PROBE)
    finally:
        await sandbox.close()
    if result.logs.strip() != f"{host.inner_id} {host.inner_id} EPERM":
        raise SandboxUnavailable("code in a sandbox is not who it should be, or its system calls are not filtered")
