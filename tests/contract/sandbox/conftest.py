"""Real sandboxes; where this host cannot build them, the tests are skipped and say why."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deployments.tools.sandbox.host import SandboxHost, prepare_host
from deployments.tools.sandbox.limits import MIB, Limits
from deployments.tools.sandbox.root import SandboxUnavailable
from deployments.tools.sandbox.sandbox import Sandbox

SMALL = Limits(
    memory_bytes=192 * MIB,
    work_bytes=8 * MIB,
    scratch_bytes=MIB,
    num_inodes=2000,
    num_processes=16,
    open_files=64,
    file_bytes=4 * MIB,
    call_s=30.0,
    interrupt_s=1.0,
    output_bytes=64 * 1024,
    flood_bytes=MIB,
    idle_cpu_s=0.2,
)
"""Bounds that an attempt reaches quickly, and that a host does not feel."""


@pytest.fixture(scope="session")
def host() -> SandboxHost:
    """What makes the sandboxes of these tests."""
    try:
        return asyncio.run(prepare_host(SMALL))
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox can be built here: {error}")


@pytest.fixture
async def sandbox(host) -> AsyncIterator[Sandbox]:
    """A sandbox of its own."""
    made = await host.start()
    yield made
    await made.close()
