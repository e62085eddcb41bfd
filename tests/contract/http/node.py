"""Node, and the tests that are written for it."""

import asyncio
import fcntl
import functools
import os
import subprocess
from pathlib import Path

import pytest

from tests import needs

PLACE = Path(__file__).parents[1] / "node"


@pytest.fixture(scope="session")
def node() -> str:
    """The program, once the clients' packages are installed."""
    program, npm = needs.node()
    if not _install(npm):
        needs.uninstalled("npm could not install the clients")
    return program


@functools.cache
def _install(npm: str) -> bool:
    """Return whether the clients' packages are installed; install them where they are not yet."""
    with (PLACE / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Test processes may run side by side.
        if all((PLACE / "node_modules" / name).exists() for name in ("openai", "@ai-sdk/open-responses")):
            return True
        command = [npm, "ci", "--no-audit", "--no-fund"]
        try:
            return subprocess.run(command, cwd=PLACE, capture_output=True, timeout=120, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False


async def run_tests(node: str, name: str, num_tests: int, **environment: str) -> None:
    """Run a file of tests of Node's, all of which pass; Node takes a file without any for a test that passes."""
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
