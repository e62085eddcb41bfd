"""The Python clients that need versions of packages that the service does not: an environment of their own."""

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
_ENVIRONMENT = Path(sys.prefix) / "python-clients"
_PYTHON = _ENVIRONMENT / "bin" / "python"
_UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment that has the clients."""
    if not _install():
        needs.uninstalled("uv could not install the Python clients")
    return _PYTHON


@functools.cache
def _install() -> bool:
    """Return whether exactly the pinned packages are installed; install them where they are not yet."""
    wanted = PLACE / "requirements.txt"
    installed = _ENVIRONMENT / "installed.txt"
    with wanted.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Test processes may run side by side.
        if installed.exists() and installed.read_text() == wanted.read_text():
            return True
        commands = (
            [_UV, "venv", "--quiet", "--clear", "--python", sys.executable, _ENVIRONMENT],
            [_UV, "pip", "sync", "--quiet", "--python", _PYTHON, wanted],
        )
        try:
            for command in commands:
                subprocess.run(command, check=True, capture_output=True, timeout=180)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        installed.write_text(wanted.read_text())
        return True


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
