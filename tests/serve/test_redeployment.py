"""A changed configuration goes live under running streams: they finish, and nobody is turned away."""

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from openai import OpenAI

from tests.service import CHAT, SMALL, Service, eventually, staying

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
    deadline = time.monotonic() + 400  # Two busy cores take minutes.
    headers = {"authorization": f"Bearer {key}"}
    body = {"model": CHAT, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 2}
    were_open = 0

    def is_replaced() -> bool:
        nonlocal were_open
        now = {name: service.replicas(name) for name in before}
        are_leaving = all(now.values()) and any(before[name] - staying(now[name]) for name in (SMALL, CHAT))
        if not is_leaving.is_set() and are_leaving:
            were_open = sum(not stream.done() for stream in streams)
            is_leaving.set()
        return all(ones and not {one.replica_id for one in ones} & before[name] for name, ones in now.items())

    try:
        while not is_replaced():
            assert time.monotonic() < deadline
            answer = httpx2.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=20)
            refusals += [answer.text] * (answer.status_code != 200)
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
