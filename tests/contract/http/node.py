"""Node with the clients that npm installs, and the tests that are written for it."""

import asyncio
import fcntl
import functools
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests import needs

PLACE = Path(__file__).parents[1] / "node"
AGENTS = Path(__file__).parents[1] / "agents"
MORE_AGENTS = Path(__file__).parents[1] / "more_agents"


@pytest.fixture(scope="session")
def node() -> str:
    """The program, once the clients' packages are installed."""
    program, _ = needs.node()
    _install(PLACE)
    return program


@pytest.fixture(scope="session")
def agents() -> Path:
    """The folder of the coding agents' programs, once they are installed."""
    _install(AGENTS)
    return AGENTS / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def more_agents() -> Path:
    """The folder with more agents and the programs over libraries, once their packages are installed."""
    _install(MORE_AGENTS)
    return MORE_AGENTS


@functools.cache
def _install(place: Path) -> None:
    """Install the packages of a folder where they are not installed as its lock says. Skip the test if that fails."""
    _, npm = needs.node()
    with (place / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Test processes may run side by side.
        installed, wanted = place / "node_modules" / ".installed", lock.read()
        if installed.exists() and installed.read_bytes() == wanted:
            return
        command = [npm, "ci", "--no-audit", "--no-fund"]
        with suppress(subprocess.TimeoutExpired):
            if subprocess.run(command, cwd=place, capture_output=True, timeout=240, check=False).returncode == 0:
                installed.write_bytes(wanted)
                return
    needs.uninstalled("npm could not install the clients")


async def run_tests(node: str, name: str, num_tests: int, **environment: str) -> None:
    """Run a file of Node's tests; all must pass. Node counts a file without tests as a test that passes."""
    process = await asyncio.create_subprocess_exec(
        node,
        "--test",
        "--test-reporter=tap",
        name,
        cwd=PLACE,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, output.decode()
    assert f"# tests {num_tests}\n# suites 0\n# pass {num_tests}\n" in output.decode(), output.decode()
