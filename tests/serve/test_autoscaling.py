"""Replicas that come under load and go after it, full queues that say so, streams that end before their replica."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI

from tests.service import LONG, SMALL, Replica, Service, eventually
from tests.states import EVERY_S

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

SCALE_S = 240.0


def asked(number: int, max_tokens: int) -> dict[str, Any]:
    """Return a request; each number has a prefix of its own, and so its own favourite replica."""
    return {
        "model": SMALL,
        "messages": [{"role": "user", "content": f"Story number {number}."}],
        "max_tokens": max_tokens,
    }


async def read_stream(service: Service, key: str, number: int, max_tokens: int) -> bytes:
    """Return the end of a stream. Reads without parsing: the load is to be the service's, not this process's."""
    url, headers = f"{service.url}/v1/chat/completions", {"authorization": f"Bearer {key}"}
    tail = b""
    async with (
        httpx2.AsyncClient(timeout=240) as http,
        http.stream("POST", url, json={**asked(number, max_tokens), "stream": True}, headers=headers) as answer,
    ):
        assert answer.status_code == 200
        async for piece in answer.aiter_bytes():
            tail = (tail + piece)[-600:]
    return tail


@dataclass
class Seen:
    """What came of the requests that made the load; `missed` counts the answers that ended while one was refused."""

    ends: Counter[str] = field(default_factory=Counter)
    refusals: list[APIStatusError] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)


@asynccontextmanager
async def load(client: AsyncOpenAI, num_clients: int) -> AsyncIterator[Seen]:
    """Keep that many clients asking for stories, one after the other; wait for the last answers at the end.

    None is cancelled: a client library that is interrupted leaves its connection open.
    """
    seen = Seen()
    is_over = False

    async def keep_asking(number: int) -> None:
        while not is_over:
            num_ended = seen.ends.total()
            try:
                answer = await client.chat.completions.create(**asked(number, 100))
                seen.ends[answer.choices[0].finish_reason] += 1
            except APIStatusError as refused:
                seen.refusals.append(refused)
                seen.missed.append(seen.ends.total() - num_ended)
                await asyncio.sleep(1)

    tasks = [asyncio.create_task(keep_asking(number)) for number in range(num_clients)]
    try:
        yield seen
    finally:
        is_over = True
        await asyncio.gather(*tasks)


async def wait_for(service: Service, name: str, count: int) -> list[Replica]:
    """Return a deployment's replicas once there are that many, and all of them serve."""

    def look() -> list[Replica]:
        replicas = service.replicas(name)
        return replicas if [replica.state for replica in replicas] == ["RUNNING"] * count else []

    return await asyncio.to_thread(eventually, look, SCALE_S, f"{count} replicas of {name} run")


async def test_load_brings_replicas_full_queues_say_so_and_streams_outlive_the_way_down(
    service: Service, async_client: AsyncOpenAI, key: str
) -> None:
    await wait_for(service, SMALL, 1)
    await wait_for(service, "ingress", 2)
    async with load(async_client, 64) as seen:
        await wait_for(service, "ingress", 3)
        grown = {replica.replica_id for replica in await wait_for(service, SMALL, 2)}

    # One replica takes 16 and lets 16 more wait: of 64 at once, many had to be refused, and before a place was free.
    assert seen.ends.keys() == {"length"}
    assert seen.refusals
    assert {refusal.status_code for refusal in seen.refusals} <= {429, 503}
    assert all(int(refusal.response.headers["retry-after"]) >= 1 for refusal in seen.refusals)
    assert max(seen.missed) < 64, seen.missed

    has_left = asyncio.Event()
    spans: list[tuple[float, float]] = []

    async def keep_reading(number: int) -> list[bytes]:
        """Read one stream after the other until a replica has begun to leave."""
        tails = []
        while not has_left.is_set():
            began = time.monotonic()
            tails.append(await read_stream(service, key, number, 400))
            spans.append((began, time.monotonic()))
        return tails

    streams = [asyncio.create_task(keep_reading(number)) for number in range(8)]
    try:
        await asyncio.to_thread(eventually, lambda: grown & service.leaving(SMALL), SCALE_S, "a replica leaves")
    finally:
        seen_at = time.monotonic()
        has_left.set()
    for tails in await asyncio.gather(*streams):
        assert tails
        for tail in tails:
            assert b'"finish_reason":"length"' in tail
            assert tail.endswith(b"data: [DONE]\n\n")
    assert any(began < seen_at - EVERY_S and seen_at < ended for began, ended in spans), "no stream was open"
    await wait_for(service, SMALL, 1)
    await wait_for(service, "ingress", 2)


async def test_a_model_that_is_scaled_to_zero_wakes_for_the_first_requests_and_sleeps_again(
    service: Service, async_client: AsyncOpenAI
) -> None:
    assert service.replicas(LONG) == []
    messages: Any = [{"role": "user", "content": "Hello."}]
    answers = await asyncio.gather(
        *[async_client.chat.completions.create(model=LONG, messages=messages, max_tokens=4) for _ in range(3)]
    )
    assert [answer.choices[0].finish_reason for answer in answers] == ["length"] * 3
    (replica,) = service.running(LONG)
    engine = service.engine_of(replica)
    eventually(lambda: not service.replicas(LONG), SCALE_S, "no replica is left")
    engine.wait(30)
