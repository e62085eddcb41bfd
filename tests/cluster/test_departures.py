"""Clients that leave: their generation ends in the engine at once, and they pay for what was made."""

import time
from typing import Any

import httpx2
import psutil
import pytest
from openai import APITimeoutError, OpenAI

from tests.serve.records import only_record
from tests.service import CHAT, Service, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SPIN_S = 1.0
"""How long the processes of vLLM's engine look for new work before they sleep."""
TRIES = 3
"""An engine that rests within a second where the machine has the time for it must have done so in one of these."""
LONG_ANSWER: dict[str, Any] = {
    "model": CHAT,
    "messages": [{"role": "user", "content": "Tell me everything."}],
    "max_tokens": 4000,
}


def load_of(process: psutil.Process, over_s: float = 1.0) -> float:
    """Return how much of a core an engine used over a moment."""

    processes = [process, *process.children(recursive=True)]  # The model runs in a child of the engine's process.

    def used() -> float:
        times = [one.cpu_times() for one in processes]
        return float(sum(one.user + one.system for one in times))

    before = used()
    time.sleep(over_s)
    return (used() - before) / over_s


def seconds_until_rest(engine: psutil.Process) -> float:
    """Return how long an engine goes on working, at most 15 seconds."""
    started = time.monotonic()
    while time.monotonic() - started < 15:
        if load_of(engine, 0.2) < 0.1:
            return time.monotonic() - started - 0.2
    return 15.0


def test_engine_rests_within_a_second_when_the_client_of_a_stream_leaves(service: Service, http: httpx2.Client) -> None:
    engine = service.engine_of(service.running(CHAT)[0])

    def rest_s() -> float:
        with http.stream("POST", "/v1/chat/completions", json={**LONG_ANSWER, "stream": True}) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            next(lines)
            assert load_of(engine, 0.5) > 0.2
        return seconds_until_rest(engine)

    assert any(rest_s() < SPIN_S + 1 for _ in range(TRIES))


@pytest.mark.parametrize("way", ["through the front", "to a replica"])
def test_engine_rests_within_a_second_when_the_client_of_a_whole_answer_leaves(
    service: Service, key: str, way: str
) -> None:
    engine = service.engine_of(service.running(CHAT)[0])
    url = service.url if way == "through the front" else service.ingress_urls()[0]

    def rest_s() -> float:
        with (
            OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=1.0) as impatient,
            pytest.raises(APITimeoutError),
        ):
            impatient.chat.completions.create(**LONG_ANSWER)
        return seconds_until_rest(engine)

    assert any(rest_s() < SPIN_S + 1 for _ in range(TRIES))


def test_many_departures_leave_nothing_behind(service: Service, http: httpx2.Client) -> None:
    for _ in range(10):
        with http.stream("POST", "/v1/chat/completions", json={**LONG_ANSWER, "stream": True}) as answer:
            next(answer.iter_lines())

    def in_flight() -> float:
        pages = [httpx2.get(f"{url}/metrics", timeout=10).text for url in service.ingress_urls()]
        lines = [line for page in pages for line in page.splitlines() if line.startswith("manta_requests_in_flight ")]
        assert len(lines) == len(pages)
        return sum(float(line.split()[1]) for line in lines) - len(pages)  # Each page counts its own request.

    eventually(lambda: in_flight() == 0, 15, "nothing is in flight")
    eventually(lambda: load_of(service.engine_of(service.running(CHAT)[0])) < 0.1, 15, "the engine rests")


async def test_departure_is_recorded_with_what_was_made(service: Service) -> None:
    issued, secret = await service.issue(tier="enterprise", requests_per_minute=100, tokens_per_minute=10_000_000)
    with (
        httpx2.Client(base_url=service.url, headers={"authorization": f"Bearer {secret}"}, timeout=60) as http,
        http.stream("POST", "/v1/chat/completions", json={**LONG_ANSWER, "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        for _ in range(40):
            next(lines)
    record = await only_record(service, issued.key_id)
    assert record.status == 499
    assert 15 <= record.completion_tokens < 4000
    assert record.prompt_tokens > 0
