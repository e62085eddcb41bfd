"""What some tests need of the machine beyond Python's packages: a function returns it, or skips the test and says why.

In pytest's summary the skips for one missing program are one line with the number of tests.
"""

import asyncio
import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from deployments.tools.sandbox.host import SandboxHost, prepare_host
from deployments.tools.sandbox.limits import Limits
from deployments.tools.sandbox.root import SandboxUnavailable, find_root
from tests.contract.state.postgres import PROGRAMS
from tests.tools.drills.missing import reason

_EVERY_PROTOCOL = 3


class Missing(pytest.skip.Exception):
    """The machine lacks what a test needs."""


def missing(reason: str) -> NoReturn:
    """Skip the test that asks."""
    raise Missing(reason)


def uninstalled(reason: str) -> NoReturn:
    """Skip the test that asks, for want of what `.ci/run` installs: in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    missing(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report the place of a skip where it was raised: pytest reports the test's own for one that a fixture raises."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, Missing):
        raised = call.excinfo.traceback[-1]
        report.longrepr = (str(raised.path), raised.lineno + 1, str(call.excinfo.value))
    return report


def sandboxes(limits: Limits, *, has_shell: bool = False) -> SandboxHost:
    """Return what makes sandboxes with these bounds; fail where bubblewrap makes one and the service refuses to."""
    host = _prepare(limits, has_shell)
    if isinstance(host, str):
        why = f"no sandbox can be built here: {host}"
        return pytest.fail(why) if _bubblewrap_works() else uninstalled(why)
    return host


@functools.cache
def _bubblewrap_works() -> bool:
    program = shutil.which("bwrap")
    command = [program or "", "--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return program is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


@functools.cache
def _prepare(limits: Limits, has_shell: bool) -> SandboxHost | str:
    """Return what makes sandboxes, or why none can be built."""
    with ThreadPoolExecutor(1) as thread:  # In the test's own, an event loop may be running.
        try:
            return thread.submit(lambda: asyncio.run(prepare_host(limits, has_shell=has_shell))).result()
        except SandboxUnavailable as error:
            return str(error)


def runsc() -> str:
    """Return gVisor's program, which MANTA_TEST_RUNSC may name; bubblewrap is there too."""
    program = os.environ.get("MANTA_TEST_RUNSC") or shutil.which("runsc")
    if program is None:
        missing("gVisor's runsc is neither on the PATH nor named by MANTA_TEST_RUNSC")
    try:
        find_root(())
    except SandboxUnavailable as error:
        uninstalled(f"no sandbox can be built here: {error}")
    return program


def postgresql() -> None:
    """Return if a PostgreSQL server can be started."""
    if not PROGRAMS:
        uninstalled("PostgreSQL's server programs are not installed (on Debian: apt-get install postgresql)")


def packets() -> socket.socket:
    """Return a socket that receives every packet on loopback."""
    try:
        found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
    except PermissionError:
        missing("packets cannot be read here: only root may, or who has CAP_NET_RAW")
    found.bind(("lo", 0))
    return found


def drills() -> None:
    """Return if nodes can be made, as network namespaces, and what they run is there."""
    if why := reason():
        missing(f"the drills are not run: {why}")


def node() -> tuple[str, str]:
    """Return the paths of Node and of npm."""
    programs = shutil.which("node"), shutil.which("npm")
    if None in programs:
        uninstalled("Node with npm is not installed (on Debian: apt-get install nodejs npm)")
    return programs  # type: ignore[return-value]


def searxng() -> str:
    """Return the address of a SearXNG."""
    return os.environ.get("MANTA_SEARXNG_URL") or missing("no SearXNG is named by MANTA_SEARXNG_URL")


def open_webui() -> str:
    """Return Open WebUI's program, which MANTA_TEST_OPEN_WEBUI may name; its environment takes 7 GB."""
    program = os.environ.get("MANTA_TEST_OPEN_WEBUI") or shutil.which("open-webui")
    wanted = "(in an environment of its own: uv pip install open-webui==0.12.4)"
    return program or missing(f"Open WebUI is neither on the PATH nor named by MANTA_TEST_OPEN_WEBUI {wanted}")
