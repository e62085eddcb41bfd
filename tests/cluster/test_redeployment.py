"""A changed configuration goes live under running streams: they finish, and nobody is turned away."""

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from openai import OpenAI

from tests.cluster.cluster import CHAT, SMALL, Service, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_streams_finish_and_requests_go_on_while_everything_is_replaced(
    service: Service, client: OpenAI, key: str
) -> None:
    before = {name: {one.replica_id for one in service.running(name)} for name in ("ingress", SMALL, CHAT)}
    config = copy.deepcopy(service.config)
    small = next(model for model in config["applications"][0]["args"]["models"] if model["id"] == SMALL)
    small["max_queued_requests"] += 1

    def stream(number: int, model: str) -> str | None:
        chunks = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": f"Story {number}."}], max_tokens=3900, stream=True
        )
        end = None
        for chunk in chunks:
            started.set()
            for part in chunk.choices:
                end = part.finish_reason or end
        return end

    started = threading.Event()
    threads = ThreadPoolExecutor(3)
    streams = [threads.submit(stream, number, model) for number, model in enumerate((SMALL, SMALL, CHAT))]
    assert started.wait(30)
    service.deploy(config)

    statuses = []
    deadline = time.monotonic() + 400  # Two busy cores take more than three minutes.
    headers = {"authorization": f"Bearer {key}"}
    body = {"model": CHAT, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 2}

    def is_replaced() -> bool:
        now = {name: {one.replica_id for one in service.replicas(name)} for name in before}
        return all(ids and not ids & before[name] for name, ids in now.items())

    while not is_replaced():
        assert time.monotonic() < deadline
        answer = httpx2.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=20)
        statuses.append(answer.status_code)
    assert [one.result() for one in streams] == ["length"] * 3
    assert set(statuses) == {200}
    service.config = config
    eventually(
        lambda: all(deployment["status"] == "HEALTHY" for deployment in service.deployments().values()),
        120,
        "everything is healthy",
    )
