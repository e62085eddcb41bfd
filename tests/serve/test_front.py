"""The front of a running service: what controls the service or the front may die, and requests go on."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psutil
import pytest

from deployments.state.usage.record import RequestRecord
from tests.service import CHAT, Service, describe, eventually, is_living

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

NUM_STREAMS, NUM_WHOLE = 12, 8
NUM_TOKENS = 100
WATCHED_S = 6.0
TRIES = 2
"""What holds within a second where the machine has the time for it must have held in one of these."""


@dataclass
class Seen:
    """What clients met: endings by kind, and how long the slowest request took."""

    ended: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0


@asynccontextmanager
async def load(service: Service, key: str) -> AsyncIterator[Seen]:
    """Run streaming and other clients, each with one request after another; yield what they see."""
    seen = Seen()
    is_over = asyncio.Event()
    headers = {"authorization": f"Bearer {key}"}
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60, limits=limits) as http:

        async def keep_asking(is_stream: bool) -> None:
            while not is_over.is_set():
                started = time.monotonic()
                seen.ended[await end_of(http, is_stream)] += 1
                seen.slowest_s = max(seen.slowest_s, time.monotonic() - started)

        clients = [asyncio.create_task(keep_asking(number < NUM_STREAMS)) for number in range(NUM_STREAMS + NUM_WHOLE)]
        await asyncio.sleep(2)
        yield seen
        is_over.set()
        await asyncio.gather(*clients)


async def end_of(http: httpx2.AsyncClient, is_stream: bool) -> str:
    """Ask once; return "done", or what else became of it."""
    body: dict[str, Any] = {"model": CHAT, "max_tokens": NUM_TOKENS, "stream": is_stream}
    body["messages"] = [{"role": "user", "content": "Tell me of the sea."}]
    try:
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                return str(answer.status_code)
            lines = [line async for line in answer.aiter_lines() if line]
    except httpx2.TransportError as error:
        return type(error).__name__
    return "done" if not is_stream or lines[-1] == "data: [DONE]" else "cut"


def process(service: Service, *words: str) -> psutil.Process:
    """Return the service's process that has these words in its command line."""

    def look() -> psutil.Process | None:
        found = [one for one in service.processes() if is_living(one)]
        return next((one for one in found if all(word in describe(one) for word in words)), None)

    return eventually(look, 60, f"there is a process {words}")  # type: ignore[return-value]


async def slowest_while_killed(service: Service, key: str, words: tuple[str, ...]) -> float:
    """Kill a process under load; asserts that no request fails, and that the process is back; return the slowest."""
    killed = await asyncio.to_thread(process, service, *words)
    async with load(service, key) as seen:
        killed.kill()
        await asyncio.sleep(WATCHED_S)
    assert {*seen.ended} == {"done"}, seen.ended
    successor = await asyncio.to_thread(process, service, *words)
    assert successor.pid != killed.pid
    return seen.slowest_s


@pytest.mark.parametrize(
    "words",
    [
        ("ray::ServeController",),
        ("ray::ProxyActor",),
        ("serve_app.front.agent",),
        ("serve_app.front.supervisor",),
    ],
    ids=lambda words: words[0],
)
async def test_no_request_fails_or_waits_when_it_is_killed(service: Service, key: str, words: tuple[str, ...]) -> None:
    extra_s = []
    for _ in range(TRIES):
        async with load(service, key) as undisturbed:
            await asyncio.sleep(3)
        extra_s.append(await slowest_while_killed(service, key, words) - undisturbed.slowest_s)
        if extra_s[-1] < 1.0:
            return
    raise AssertionError(f"the slowest request took longer by {extra_s} s")


async def test_only_what_is_on_a_haproxy_ends_when_it_is_killed(service: Service, key: str) -> None:
    killed = await asyncio.to_thread(process, service, "haproxy", "haproxy-0.cfg")
    async with load(service, key) as seen:
        killed.kill()
        await asyncio.sleep(WATCHED_S)
    cut = seen.ended.total() - seen.ended["done"]
    assert seen.ended["done"] > NUM_STREAMS
    assert cut <= NUM_STREAMS + NUM_WHOLE - 1, seen.ended
    assert not {*seen.ended} - {"done", "cut", "RemoteProtocolError", "ReadError"}, "a new connection was refused"
    assert (await asyncio.to_thread(process, service, "haproxy", "haproxy-0.cfg")).pid != killed.pid


async def test_whole_answer_is_given_and_charged_once_when_its_ingress_dies(service: Service) -> None:
    issued, secret = await service.issue(tier="enterprise", requests_per_minute=1000, tokens_per_minute=10_000_000)
    replicas = await asyncio.to_thread(two_ingress_replicas, service)
    body = {"model": CHAT, "max_tokens": 300, "messages": [{"role": "user", "content": "Tell me of the sea."}]}
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60) as http:
        asked = [asyncio.create_task(http.post("/v1/chat/completions", json=body)) for _ in range(12)]
        await asyncio.sleep(1.5)
        psutil.Process(replicas[0]).kill()
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert {answer.json()["usage"]["completion_tokens"] for answer in answers} == {300}
    ids = Counter(answer.headers["x-request-id"] for answer in answers)
    records = await records_of(service, issued.key_id)
    assert Counter(record.request_id for record in records) == ids
    assert {record.completion_tokens for record in records} == {300}


def two_ingress_replicas(service: Service) -> list[int]:
    """Return the process ids of two ingress replicas that serve."""

    def look() -> list[int]:
        pids = [replica.pid for replica in service.running("ingress")]
        return [pid for pid in pids if psutil.pid_exists(pid) and is_living(psutil.Process(pid))]

    return eventually(lambda: pids if len(pids := look()) >= 2 else [], 120, "two ingress replicas run")


async def records_of(service: Service, key_id: str) -> list[RequestRecord]:
    """Return the records of a key, once no more are written."""
    records: list[RequestRecord] = []
    for _ in range(60):
        before = len(records)
        records = await service.with_usage(lambda usage: usage.last_requests(key_id, limit=100))
        if records and len(records) == before:
            return records
        await asyncio.sleep(2)
    raise AssertionError("records are written on and on")
