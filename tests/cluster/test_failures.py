"""Processes that die under the service's feet: clear errors, no hang, recovery by itself, no orphans."""

import time
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psutil
import pytest

from tests.service import CANARY, CHAT, EMBED, SMALL, Replica, Service, describe, eventually, is_living

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

RECOVERY_S = 180.0


def ask(service: Service, key: str, model: str, **fields: Any) -> httpx2.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4, **fields}
    headers = {"authorization": f"Bearer {key}"}
    return httpx2.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=150)


@dataclass
class Broken:
    """What was seen of one model whose process was killed in the middle of a stream."""

    model: str
    replica: Replica
    processes: list[psutil.Process]
    stream: list[str] = field(default_factory=list)
    stream_ended_after_s: float = 0.0


def break_in_mid_stream(service: Service, key: str, model: str, victim: str) -> Broken:
    replica = service.running(model)[0]
    engine = service.engine_of(replica)
    replica_process = psutil.Process(replica.pid)
    broken = Broken(model, replica, [replica_process, *replica_process.children(recursive=True)])
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{CANARY} goes on."}],
        "max_tokens": 4000,
        "stream": True,
    }
    headers = {"authorization": f"Bearer {key}"}
    url = f"{service.url}/v1/chat/completions"
    with httpx2.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        for _ in range(10):
            next(lines)
        (engine if victim == "engine" else replica_process).kill()
        killed_at = time.monotonic()
        broken.stream = [line for line in lines if line]
        broken.stream_ended_after_s = time.monotonic() - killed_at
    return broken


@pytest.fixture(scope="module")
def broken(service: Service, key: str) -> dict[str, Broken]:
    """One model whose engine was killed and one whose replica was, both while they streamed."""
    for model in (CHAT, SMALL):
        assert ask(service, key, model).status_code == 200
    return {
        "engine": break_in_mid_stream(service, key, CHAT, "engine"),
        "replica": break_in_mid_stream(service, key, SMALL, "replica"),
    }


@pytest.mark.parametrize("victim", ["engine", "replica"])
def test_stream_ends_with_an_error_event_when_its_process_is_killed(broken: dict[str, Broken], victim: str) -> None:
    last = broken[victim].stream[-1]
    assert last.startswith('data: {"error":{')
    assert '"type":"server_error"' in last
    assert broken[victim].stream_ended_after_s < 30  # A client does not wait for the recovery.


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
def test_requests_meanwhile_wait_or_are_told_to_come_back(
    service: Service, key: str, broken: dict[str, Broken], victim: str
) -> None:
    started = time.monotonic()
    answer = ask(service, key, broken[victim].model)
    assert time.monotonic() - started < 90
    assert answer.status_code in (200, 500, 503), answer.text
    if answer.status_code != 200:
        assert answer.json()["error"]["type"] == "server_error"


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
