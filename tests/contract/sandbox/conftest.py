"""Real sandboxes; where this host cannot build them, the tests are skipped and say why."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from deployments.tools.sandbox.host import SandboxHost
from deployments.tools.sandbox.limits import MIB, Limits
from deployments.tools.sandbox.sandbox import Sandbox
from tests.needs import sandboxes

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
    return sandboxes(SMALL)


@pytest.fixture
async def sandbox(host) -> AsyncIterator[Sandbox]:
    """A sandbox of its own."""
    made = await host.start()
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(host) -> AsyncIterator[Sandbox]:
    """A sandbox for attempts that leave it as it was."""
    made = await host.start()
    yield made
    assert made.is_running
    await made.close()
