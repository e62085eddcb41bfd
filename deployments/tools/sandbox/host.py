"""What this host needs for sandboxes, found out once: all that a sandbox is made from, tried."""

from collections.abc import Sequence

from deployments.tools.sandbox.census import Census
from deployments.tools.sandbox.limits import Limits
from deployments.tools.sandbox.root import Root, SandboxUnavailable, find_root
from deployments.tools.sandbox.sandbox import Sandbox, start_sandbox
from deployments.tools.sandbox.seccomp import UnsupportedMachine, build_filter

DEFAULT_PACKAGES = ("numpy", "pandas", "matplotlib")


class SandboxHost:
    """Makes sandboxes that are all alike."""

    def __init__(self, root: Root, limits: Limits, seccomp: bytes, preload: Sequence[str]) -> None:
        self.limits = limits
        self.census = Census()
        self._root = root
        self._seccomp = seccomp
        self._preload = tuple(preload)

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
    host = SandboxHost(find_root(packages), limits or Limits(), seccomp, preload)
    sandbox = await host.start()
    try:
        result = await sandbox.run("import os; print(os.getuid(), os.getgid())")
    finally:
        await sandbox.close()
    if result.logs.strip() != "65534 65534":
        raise SandboxUnavailable("code in a sandbox does not run as nobody")
    return host
