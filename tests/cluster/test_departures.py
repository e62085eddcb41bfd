"""Clients that leave: their generation ends in the engine at once.

What they pay, and that nothing stays in flight, is in `tests/serve/test_departures.py`.
"""

import asyncio
import time
from typing import Any

import httpx2
import psutil
import pytest

from tests.service import CHAT, Service
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SPIN_S = 1.0
"""How long the processes of vLLM's engine look for new work before they sleep."""
LONG_ANSWER: dict[str, Any] = {
    "model": CHAT,
    "messages": [{"role": "user", "content": "Tell me everything."}],
    "max_tokens": 4000,
}


@pytest.fixture
def engine(service: Service) -> psutil.Process:
    """The engine that answers, while it has nothing to do."""
    (replica,) = service.running(CHAT)
    engine = service.engine_of(replica)
    used_until_rest(engine)
    return engine


def used(engine: psutil.Process) -> float:
    """Return the processor time that an engine has taken, in seconds; the model runs in a child of its process."""
    times = [one.cpu_times() for one in (engine, *engine.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def used_until_rest(engine: psutil.Process) -> float:
    """Wait until an engine rests, and return the processor time that it has taken meanwhile."""
    first, before = used(engine), float("-inf")
    while (now := used(engine)) - before > 0.03:
        before = now
        time.sleep(0.5)
    return now - first


def test_engine_rests_when_the_client_of_a_stream_leaves(http: httpx2.Client, engine: psutil.Process) -> None:
    with http.stream("POST", "/v1/chat/completions", json={**LONG_ANSWER, "stream": True}) as answer:
        assert answer.status_code == 200
        next(answer.iter_lines())
    assert used_until_rest(engine) < SPIN_S + 1


@pytest.mark.parametrize("way", ["through the front", "to a replica"])
async def test_engine_rests_when_the_client_of_a_whole_answer_leaves(
    service: Service, key: str, engine: psutil.Process, way: str
) -> None:
    url = service.url if way == "through the front" else service.ingress_urls()[0]
    at_rest = used(engine)
    async with httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=LONG_ANSWER))
        await eventually(lambda: used(engine) - at_rest > 0.3)
        assert not asked.done()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    assert used_until_rest(engine) < SPIN_S + 1
