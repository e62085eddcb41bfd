"""Processes that die under the service's feet: streams wait for what replaces them, recovery by itself, no orphans."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psutil
import pytest

from tests.service import CANARY, CHAT, EMBED, SMALL, Replica, Service, describe, eventually, is_living

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

RECOVERY_S = 180.0
REFUSALS = (
    "The model stopped while it was processing your request. Please retry your request.",
    "The engine is currently overloaded, please try again later.",
)


GREEDY: dict[str, Any] = {
    "messages": [{"role": "user", "content": f"{CANARY} goes on."}],
    "max_tokens": 2000,
    "temperature": 0,
}


def ask(service: Service, key: str, model: str, **fields: Any) -> httpx2.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4, **fields}
    headers = {"authorization": f"Bearer {key}"}
    return httpx2.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=RECOVERY_S)


@dataclass
class Asked:
    """An answer, and how long it took."""

    answer: httpx2.Response
    took_s: float


def ask_until_answered(service: Service, key: str, model: str) -> list[Asked]:
    """Ask again and again until a request succeeds, for as long as a recovery may take; return every answer."""
    deadline = time.monotonic() + RECOVERY_S
    asked: list[Asked] = []
    while (not asked or asked[-1].answer.status_code != 200) and time.monotonic() < deadline:
        started = time.monotonic()
        asked.append(Asked(ask(service, key, model), time.monotonic() - started))
        time.sleep(0.25)
    return asked


@dataclass
class Broken:
    """What was seen of one model whose process was killed in the middle of a stream."""

    model: str
    replica: Replica
    processes: list[psutil.Process]
    meanwhile: Future[list[Asked]] = field(default_factory=Future)
    stream: list[str] = field(default_factory=list)


def break_in_mid_stream(service: Service, key: str, model: str, victim: str, asking: ThreadPoolExecutor) -> Broken:
    replica = service.running(model)[0]
    engine = service.engine_of(replica)
    replica_process = psutil.Process(replica.pid)
    broken = Broken(model, replica, [replica_process, *replica_process.children(recursive=True)])
    body = {"model": model, **GREEDY, "stream": True}
    headers = {"authorization": f"Bearer {key}"}
    url = f"{service.url}/v1/chat/completions"
    with httpx2.stream("POST", url, json=body, headers=headers, timeout=RECOVERY_S) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        for _ in range(10):
            next(lines)
        (engine if victim == "engine" else replica_process).kill()
        broken.meanwhile = asking.submit(ask_until_answered, service, key, model)
        broken.stream = [line for line in lines if line]
    return broken


@pytest.fixture(scope="module")
def broken(service: Service, key: str) -> Iterator[dict[str, Broken]]:
    """One model whose engine was killed and one whose replica was, both while they streamed."""
    for model in (CHAT, SMALL):
        assert ask(service, key, model).status_code == 200
    with ThreadPoolExecutor(2) as asking:
        yield {
            "engine": break_in_mid_stream(service, key, CHAT, "engine", asking),
            "replica": break_in_mid_stream(service, key, SMALL, "replica", asking),
        }


@pytest.mark.parametrize("victim", ["engine", "replica"])
def test_stream_waits_for_the_new_process_and_goes_on(
    service: Service, key: str, broken: dict[str, Broken], victim: str
) -> None:
    *events, last = broken[victim].stream
    assert last == "data: [DONE]"
    whole = ask(service, key, broken[victim].model, **GREEDY).json()["choices"][0]["message"]["content"]
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    rest = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert len(rest) > 1000
    assert whole.endswith(rest)  # Ten lines were read before the process was killed.


def test_other_models_answer_meanwhile(service: Service, key: str, broken: dict[str, Broken]) -> None:
    slowest = 0.0
    for _ in range(10):
        started = time.monotonic()
        answer = httpx2.post(
            f"{service.url}/v1/embeddings",
            json={"model": EMBED, "input": CANARY},
            headers={"authorization": f"Bearer {key}"},
            timeout=60,
        )
        assert answer.status_code == 200
        slowest = max(slowest, time.monotonic() - started)
    assert slowest < 20  # Two engines start meanwhile and want both cores; nobody waits until they are there.


@pytest.mark.parametrize("victim", ["engine", "replica"])
def test_requests_meanwhile_wait_or_are_told_to_come_back(broken: dict[str, Broken], victim: str) -> None:
    asked = broken[victim].meanwhile.result()
    assert max(one.took_s for one in asked) < RECOVERY_S
    *refused, last = [one.answer for one in asked]
    assert last.status_code == 200, last.text
    assert last.json()["choices"][0]["message"]["content"]
    for answer in refused:
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", None)
        assert error["message"] in REFUSALS
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("victim", ["engine", "replica"])
def test_model_comes_back_by_itself(service: Service, key: str, broken: dict[str, Broken], victim: str) -> None:
    model, before = broken[victim].model, broken[victim].replica
    eventually(lambda: ask(service, key, model).status_code == 200, RECOVERY_S, f"{model} answers again", 1.0)
    (after,) = service.running(model)
    assert after.replica_id != before.replica_id


@pytest.mark.parametrize("victim", ["engine", "replica"])
def test_no_process_of_the_dead_is_left(broken: dict[str, Broken], victim: str) -> None:
    def left() -> list[str]:
        return [describe(process) for process in broken[victim].processes if is_living(process)]

    eventually(lambda: not left(), 30, f"nothing is left of {broken[victim].model}")
