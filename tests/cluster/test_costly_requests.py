"""What one cheap key asks for takes nothing from the others: it is refused soon, and memory comes back."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Event
from typing import Any

import httpx2
import psutil
import pytest

from tests.service import CHAT, EMBED, Service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MB = 1_000_000
MESSAGES = [{"role": "user", "content": "Hello."}]
LONG = [{"role": "user", "content": "a b " * 450}]
VAST = [{"role": "user", "content": "a b " * (6 * MB)}]
CHATS, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
# A request, and the status and the code of its refusal.
COSTLY: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "a text that is truncated": (CHATS, {"messages": VAST, "truncate_prompt_tokens": -1}, 429, "rate_limit_exceeded"),
    "texts that are truncated": (
        EMBEDDINGS,
        {"model": EMBED, "input": ["cat " * 7500] * 2000, "truncate_prompt_tokens": 1},
        400,
        "max_tokens_per_request",
    ),
    "log probabilities of a prompt for each choice": (
        CHATS,
        {"messages": LONG, "n": 128, "prompt_logprobs": 20},
        400,
        "invalid_value",
    ),
    "a prompt that is echoed for each choice": (
        "/v1/completions",
        {"prompt": "a b " * 450, "n": 128, "echo": True, "logprobs": 5},
        400,
        "invalid_value",
    ),
    "many numbers": (CHATS, {"messages": MESSAGES, "prediction": {"a": [0] * (14 * MB)}}, 400, ""),
}


def resident(service: Service) -> dict[str, int]:
    """Return the memory of what answers, in bytes."""
    gatekeeper = service.process_named("ray::Gatekeeper")
    assert gatekeeper is not None
    replicas = [*service.running("ingress"), *service.running(CHAT), *service.running(EMBED)]
    processes = {replica.replica_id: psutil.Process(replica.pid) for replica in replicas} | {"gatekeeper": gatekeeper}
    return {name: process.memory_info().rss for name, process in processes.items()}


def body_of(path: str, fields: dict[str, Any]) -> bytes:
    return json.dumps({"model": CHAT, "max_tokens": 4, **fields} if path != EMBEDDINGS else fields).encode()


def post(service: Service, secret: str, path: str, body: bytes) -> httpx2.Response:
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    return httpx2.post(f"{service.url}{path}", content=body, headers=headers, timeout=120)


def test_a_cheap_keys_costly_requests_are_refused_while_others_are_answered(
    service: Service, http: httpx2.Client
) -> None:
    _, secret = asyncio.run(service.issue(tier="free", account="cheap"))
    before, num_answered = resident(service), 0
    with ThreadPoolExecutor(len(COSTLY)) as threads:
        asked = {
            name: threads.submit(post, service, secret, path, body_of(path, fields))
            for name, (path, fields, _, _) in COSTLY.items()
        }
        while not all(one.done() for one in asked.values()) or num_answered < 3:
            answer = http.post(CHATS, json={"model": CHAT, "messages": MESSAGES, "max_tokens": 4})
            assert answer.status_code == 200
            num_answered += 1
    for name, (_, _, status, code) in COSTLY.items():
        answer = asked[name].result()
        assert (answer.status_code, answer.json()["error"]["code"] or "") == (status, code), (name, answer.text[:300])
    after = resident(service)
    assert before.keys() == after.keys()
    assert {name: after[name] / before[name] for name in before if after[name] > 1.2 * before[name]} == {}


@pytest.mark.exhaustive
def test_others_are_answered_as_soon_beside_each_costly_request(service: Service, http: httpx2.Client) -> None:
    """Each is sent over and over for as long as another account asks; its bytes are made before."""
    _, secret = asyncio.run(service.issue(tier="free", account="cheap"))

    def answered_in() -> float:
        begun = time.perf_counter()
        answer = http.post(CHATS, json={"model": CHAT, "messages": MESSAGES, "max_tokens": 16})
        assert answer.status_code == 200
        return time.perf_counter() - begun

    before, ratios = resident(service), {}
    for name, (path, fields, _, _) in COSTLY.items():
        body, is_over = body_of(path, fields), Event()
        alone = median(answered_in() for _ in range(20))

        def send(path: str = path, body: bytes = body, is_over: Event = is_over) -> None:
            while not is_over.is_set():
                post(service, secret, path, body)

        with ThreadPoolExecutor(1) as threads:
            sending = threads.submit(send)
            ratios[name] = round(median(answered_in() for _ in range(40)) / alone, 2)
            is_over.set()
            sending.result()
    after = resident(service)
    print("\nothers' times, beside and alone:", ratios)
    print("memory, after and before:", {name: round(after[name] / before[name], 2) for name in before})
    assert max(ratios.values()) <= 2
    assert all(after[name] <= 1.2 * before[name] for name in before)
