"""Node, and the tests that are written for it."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[1] / "node"


@pytest.fixture(scope="module")
def node() -> str:
    """The program, once the client's package is installed."""
    program = shutil.which("node")
    npm = shutil.which("npm")
    if program is None or npm is None:
        pytest.skip("node and npm are not installed")
    if not all((PLACE / "node_modules" / name).exists() for name in ("openai", "@ai-sdk/open-responses")):
        installed = subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=PLACE, capture_output=True, timeout=200)
        if installed.returncode:
            pytest.skip("npm could not install the client")
    return program


async def run_tests(node: str, name: str, **environment: str) -> None:
    """Run a file of tests of Node's."""
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
    assert b"# fail 0" in output
