"""The Python clients that need versions of packages that the service does not: environments of their own."""

import asyncio
import fcntl
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

PLACE = Path(__file__).parents[1] / "python_clients"
_AIDER = Path(__file__).parents[1] / "aider"
_UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment that has the clients."""
    return _programs(PLACE) / "python"


@pytest.fixture(scope="session")
def aider() -> Path:
    """The program of aider, which pins a hundred packages."""
    return _programs(_AIDER) / "aider"


@functools.cache
def _programs(place: Path) -> Path:
    """Return the programs of a folder's environment, with exactly its pinned packages. Skip the test if that fails."""
    wanted = place / "requirements.txt"
    environment = Path(sys.prefix) / place.name.replace("_", "-")
    installed, programs = environment / "installed.txt", environment / "bin"
    with wanted.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Test processes may run side by side.
        if installed.exists() and installed.read_text() == wanted.read_text():
            return programs
        commands = (
            [_UV, "venv", "--quiet", "--clear", "--python", sys.executable, environment],
            [_UV, "pip", "sync", "--quiet", "--python", programs / "python", wanted],
        )
        try:
            for command in commands:
                subprocess.run(command, check=True, capture_output=True, timeout=180)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            needs.uninstalled(f"uv could not install the packages of {place.name}")
        installed.write_text(wanted.read_text())
        return programs


async def run_tests(python: Path, name: str, **environment: str) -> None:
    """Run a file of tests of a client's."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini", name]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=PLACE,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, output.decode()
