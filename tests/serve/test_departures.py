"""Clients that leave: they pay for what was made, and nothing goes on without them."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.serve.ingress import num_in_flight
from tests.serve.records import only_record
from tests.service import CHAT, Service, eventually
from tests.waiting import eventually as soon

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

LONG_ANSWER: dict[str, Any] = {
    "model": CHAT,
    "messages": [{"role": "user", "content": "Tell me everything."}],
    "max_tokens": 4000,
}
LONG_ANSWERS = {
    "/v1/chat/completions": LONG_ANSWER,
    "/v1/completions": {"model": CHAT, "prompt": ["Tell me everything.", "Tell me more."], "n": 2, "max_tokens": 3000},
}


@pytest.mark.parametrize("path", LONG_ANSWERS)
async def test_departure_is_recorded_with_what_was_made(service: Service, path: str) -> None:
    issued, secret = await service.issue(tier="enterprise", requests_per_minute=100, tokens_per_minute=10_000_000)
    with (
        httpx2.Client(base_url=service.url, headers={"authorization": f"Bearer {secret}"}, timeout=60) as http,
        http.stream("POST", path, json={**LONG_ANSWERS[path], "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        for _ in range(40):
            next(lines)
    record = await only_record(service, issued.key_id)
    assert record.status == 499
    assert 15 <= record.completion_tokens < 12_000
    assert record.prompt_tokens > 0


async def test_departure_from_a_whole_completion_is_recorded_with_what_was_made(service: Service) -> None:
    issued, secret = await service.issue(tier="enterprise", requests_per_minute=100, tokens_per_minute=10_000_000)
    headers = {"authorization": f"Bearer {secret}"}
    urls = service.ingress_urls()
    async with httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60) as http:

        async def has_begun() -> bool:
            return any(await asyncio.to_thread(num_in_flight, urls))

        asking = asyncio.create_task(http.post("/v1/completions", json=LONG_ANSWERS["/v1/completions"]))
        await soon(has_begun)
        await asyncio.sleep(0.5)  # What was generated meanwhile is not sent.
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    record = await only_record(service, issued.key_id)
    assert record.status == 499
    assert 0 < record.completion_tokens < 12_000
    assert record.prompt_tokens > 0


def test_many_departures_leave_nothing_behind(service: Service, http: httpx2.Client) -> None:
    for _ in range(10):
        with http.stream("POST", "/v1/chat/completions", json={**LONG_ANSWER, "stream": True}) as answer:
            next(answer.iter_lines())
    urls = service.ingress_urls()
    eventually(lambda: not any(num_in_flight(urls)), 15, "nothing is in flight")
