"""The front of a running service: what controls the service or the front may die, and requests go on."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psutil
import pytest

from tests.serve.ingress import num_in_flight, two_ingress_replicas
from tests.serve.records import records_of
from tests.service import CHAT, EMBED, Replica, Service, describe, is_living
from tests.waiting import eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

NUM_STREAMS, NUM_WHOLE = 12, 8
NUM_CLIENTS = NUM_STREAMS + NUM_WHOLE
NUM_TOKENS = 100
CONTROLLER = "ray::ServeController"
STAYING = (CHAT, EMBED)
"""Models whose replicas never come and go by themselves."""


@dataclass
class Seen:
    """What clients met: endings by kind."""

    ended: Counter[str] = field(default_factory=Counter)

    async def more(self) -> None:
        """Wait until every client has begun and ended a request."""
        enough = self.ended.total() + 2 * NUM_CLIENTS
        await eventually(lambda: self.ended.total() >= enough, 120)


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
                seen.ended[await end_of(http, is_stream)] += 1

        clients = [asyncio.create_task(keep_asking(number < NUM_STREAMS)) for number in range(NUM_CLIENTS)]
        try:
            yield seen
        finally:
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


def process(service: Service, *words: str) -> psutil.Process | None:
    """Return the service's process that has these words in its command line."""
    found = [one for one in service.processes() if is_living(one)]
    return next((one for one in found if all(word in describe(one) for word in words)), None)


async def kill(service: Service, *words: str) -> None:
    """Kill a process; return when another has its place."""
    killed = await asyncio.to_thread(process, service, *words)
    assert killed is not None
    killed.kill()

    async def is_back() -> bool:
        return await asyncio.to_thread(process, service, *words) not in (None, killed)

    await eventually(is_back, 60)


async def replicas_of(service: Service) -> dict[str, set[str]]:
    """Return the ids of the replicas that stay, once the controller tells them."""
    found: dict[str, set[str]] = {}

    async def are_told() -> bool:
        with suppress(KeyError, ValueError, httpx2.HTTPError):  # The dashboard's, while there is no controller.
            found.update({name: {one.replica_id for one in await running(name)} for name in STAYING})
        return all(found.get(name) for name in STAYING)

    async def running(name: str) -> list[Replica]:
        return await asyncio.to_thread(service.running, name)

    await eventually(are_told, 120)
    return found


@pytest.mark.parametrize(
    "words",
    [
        (CONTROLLER,),
        pytest.param(("ray::ProxyActor",), marks=pytest.mark.exhaustive),
        pytest.param(("serve_app.front.agent",), marks=pytest.mark.exhaustive),
        pytest.param(("serve_app.front.supervisor",), marks=pytest.mark.exhaustive),
    ],
    ids=lambda words: words[0],
)
async def test_no_request_fails_when_it_is_killed(service: Service, key: str, words: tuple[str, ...]) -> None:
    before = await replicas_of(service)
    async with load(service, key) as seen:
        await seen.more()
        await kill(service, *words)
        after = await replicas_of(service)
        await seen.more()
    assert {*seen.ended} == {"done"}, seen.ended
    assert after == before


async def test_no_request_waits_for_a_controller_that_does_not_answer(service: Service, key: str) -> None:
    controller = await asyncio.to_thread(process, service, CONTROLLER)
    assert controller is not None
    async with load(service, key) as seen:
        await seen.more()
        controller.suspend()
        try:
            await seen.more()
        finally:
            controller.resume()
    assert {*seen.ended} == {"done"}, seen.ended


async def test_only_what_is_on_a_haproxy_ends_when_it_is_killed(service: Service, key: str) -> None:
    async with load(service, key) as seen:
        await seen.more()
        await kill(service, "haproxy", "haproxy-0.cfg")
        await seen.more()
    cut = seen.ended.total() - seen.ended["done"]
    assert 0 < cut <= NUM_CLIENTS - 1, seen.ended
    assert not {*seen.ended} - {"done", "cut", "RemoteProtocolError", "ReadError"}, "a new connection was refused"


async def test_whole_answer_is_given_and_charged_once_when_its_ingress_dies(service: Service) -> None:
    issued, secret = await service.issue(tier="enterprise", requests_per_minute=1000, tokens_per_minute=10_000_000)
    killed, *_ = await asyncio.to_thread(two_ingress_replicas, service)
    urls = await asyncio.to_thread(service.ingress_urls)

    async def all_run() -> bool:
        return sum(await asyncio.to_thread(num_in_flight, urls)) == len(asked)

    body = {"model": CHAT, "max_tokens": 400, "messages": [{"role": "user", "content": "Tell me of the sea."}]}
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60) as http:
        asked = [asyncio.create_task(http.post("/v1/chat/completions", json=body)) for _ in range(12)]
        await eventually(all_run)
        psutil.Process(killed).kill()
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert {answer.json()["usage"]["completion_tokens"] for answer in answers} == {400}
    ids = Counter(answer.headers["x-request-id"] for answer in answers)
    records = await records_of(service, issued.key_id, len(answers))
    assert Counter(record.request_id for record in records) == ids
    assert {record.completion_tokens for record in records} == {400}
