"""What the documentation promises in seconds, by a front with the product's own timings."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx2
import pytest
import pytest_asyncio

from serve_app.front.settings import NUM_PROXIES
from serve_app.front.timings import USUAL
from tests.contract.front.replicas import replicas
from tests.contract.front.running import RunningFront, running_front

CHAT = "/v1/chat/completions"
pytestmark = [pytest.mark.timed, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front() -> AsyncIterator[RunningFront]:
    async with running_front(timings=USUAL) as running:
        yield running


async def test_haproxy_that_is_killed_is_back_within_a_second_with_the_last_table(front: RunningFront) -> None:
    async with replicas(*front.replica_ports[:2]) as running:
        await front.knows(*[replica.port for replica in running])
        for number in range(NUM_PROXIES):
            killed = front.pid_of(number)
            os.kill(killed, signal.SIGKILL)
            at = time.monotonic()
            await front.is_back(number, killed)
            await front.knows(*[replica.port for replica in running])
            assert time.monotonic() - at < 1.0


async def test_request_that_a_dead_replica_refuses_waits_half_a_second(front: RunningFront) -> None:
    async def ask(client: httpx2.AsyncClient) -> float:
        began = time.monotonic()
        assert (await client.post(CHAT, content=b"{}")).status_code == 200
        return time.monotonic() - began

    async with replicas(*front.replica_ports[2:4]) as (dying, staying), AsyncExitStack() as stack:
        await front.knows(dying.port, staying.port)
        clients = [await stack.enter_async_context(front.client()) for _ in range(8)]
        with front.without_checks(dying.port):
            await dying.die()
            waits_s = await asyncio.gather(*map(ask, clients))
        assert 0.4 < max(waits_s) < 0.9
