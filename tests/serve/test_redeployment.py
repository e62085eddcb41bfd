"""A changed configuration goes live under running streams: they finish, and nobody is turned away."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from openai import OpenAI

from tests.service import CHAT, SMALL, Service, eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


def test_streams_finish_and_requests_go_on_while_everything_is_replaced(
    service: Service, client: OpenAI, key: str
) -> None:
    before = {name: {one.replica_id for one in service.running(name)} for name in ("ingress", SMALL, CHAT)}
    config = copy.deepcopy(service.config)
    small = next(model for model in config["applications"][0]["args"]["models"] if model["id"] == SMALL)
    small["max_queued_requests"] += 1
    started, is_leaving = threading.Event(), threading.Event()

    def keep_streaming(number: int, model: str) -> list[str | None]:
        """Read one stream after the other; the last is open when the first replica is seen to leave or to be gone."""
        ends = []
        while not is_leaving.is_set():
            chunks = client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": f"Story {number}."}], max_tokens=600, stream=True
            )
            end = None
            for chunk in chunks:
                started.set()
                for part in chunk.choices:
                    end = part.finish_reason or end
            ends.append(end)
        return ends

    threads = ThreadPoolExecutor(3)
    streams = [threads.submit(keep_streaming, number, model) for number, model in enumerate((SMALL, SMALL, CHAT))]
    assert started.wait(30)
    service.deploy(config)

    refusals: list[str] = []
    headers = {"authorization": f"Bearer {key}"}
    body = {"model": CHAT, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 2}
    were_open = 0

    def is_replaced() -> bool:
        nonlocal were_open
        if not is_leaving.is_set() and any(before[name] & service.leaving(name) for name in (SMALL, CHAT)):
            were_open = sum(not stream.done() for stream in streams)
            is_leaving.set()
        answer = http.post("/v1/chat/completions", json=body)
        refusals.extend([answer.text] * (answer.status_code != 200))
        return all(old <= service.gone(name) and service.arrived(name) - old for name, old in before.items())

    try:
        with httpx2.Client(base_url=service.url, headers=headers, timeout=20) as http:
            eventually(is_replaced, 400, "everything is replaced")  # Two busy cores take minutes.
    finally:
        is_leaving.set()
    ends = [end for stream in streams for end in stream.result()]
    assert len(ends) >= len(streams) == were_open
    assert set(ends) == {"length"}
    assert refusals == []
    service.config = config
    eventually(
        lambda: all(deployment["status"] == "HEALTHY" for deployment in service.deployments().values()),
        120,
        "everything is healthy",
    )
