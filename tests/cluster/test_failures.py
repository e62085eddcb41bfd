"""Processes that die under the service's feet: streams wait for what replaces them, recovery by itself, no orphans."""

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psutil
import pytest

from tests.service import CANARY, CHAT, EMBED, Replica, Service, describe, eventually, is_living
from tests.starts import started

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


def post(service: Service, key: str, path: str, **body: Any) -> httpx2.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx2.post(f"{service.url}/v1/{path}", json=body, headers=headers, timeout=RECOVERY_S)


def ask(service: Service, key: str, **fields: Any) -> httpx2.Response:
    body = {"model": CHAT, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4, **fields}
    return post(service, key, "chat/completions", **body)


def ask_until_answered(service: Service, key: str) -> list[httpx2.Response]:
    """Ask again and again until a request succeeds, for as long as a recovery may take; return every answer."""
    deadline = time.monotonic() + RECOVERY_S
    answers: list[httpx2.Response] = []
    while (not answers or answers[-1].status_code != 200) and time.monotonic() < deadline:
        answers.append(ask(service, key))
        time.sleep(0.25)
    return answers


@dataclass
class Broken:
    """What was seen of a model whose process was killed in the middle of a stream.

    `others` are the answers of another model; it `was_away` if nothing had replaced the process by the last of them.
    """

    replica: Replica
    processes: list[psutil.Process]
    meanwhile: Future[list[httpx2.Response]] = field(default_factory=Future)
    others: list[httpx2.Response] = field(default_factory=list)
    was_away: bool = False
    stream: list[str] = field(default_factory=list)


@pytest.fixture(scope="module", params=["replica", pytest.param("engine", marks=pytest.mark.exhaustive)])
def broken(request: pytest.FixtureRequest, service: Service, key: str) -> Broken:
    """A model whose replica or engine was killed while it streamed, after the stream's end."""
    assert ask(service, key).status_code == 200
    (replica,) = service.running(CHAT)
    process = psutil.Process(replica.pid)
    broken = Broken(replica, [process, *process.children(recursive=True)])
    victim = service.engine_of(replica) if request.param == "engine" else process
    body = {"model": CHAT, **GREEDY, "stream": True}
    headers = {"authorization": f"Bearer {key}"}
    url = f"{service.url}/v1/chat/completions"
    with (
        ThreadPoolExecutor(1) as asking,
        httpx2.stream("POST", url, json=body, headers=headers, timeout=RECOVERY_S) as answer,
    ):
        assert answer.status_code == 200
        lines = answer.iter_lines()
        for _ in range(10):
            next(lines)
        victim.kill()
        started("engines")
        broken.meanwhile = asking.submit(ask_until_answered, service, key)
        broken.others = [post(service, key, "embeddings", model=EMBED, input=CANARY) for _ in range(10)]
        broken.was_away = {one.replica_id for one in service.running(CHAT)} <= {replica.replica_id}
        # A stream that pauses for long says so in comments.
        broken.stream = [line for line in lines if line and not line.startswith(":")]
    return broken


def test_stream_waits_for_the_new_process_and_goes_on(service: Service, key: str, broken: Broken) -> None:
    *events, last = broken.stream
    assert last == "data: [DONE]"
    whole = ask(service, key, **GREEDY).json()["choices"][0]["message"]["content"]
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    rest = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert len(rest) > 1000
    assert whole.endswith(rest)  # Ten lines were read before the process was killed.


def test_other_models_answer_meanwhile(broken: Broken) -> None:
    assert [answer.status_code for answer in broken.others] == [200] * 10
    assert broken.was_away


def test_requests_meanwhile_wait_or_are_told_to_come_back(broken: Broken) -> None:
    *refused, last = broken.meanwhile.result()
    assert last.status_code == 200, last.text
    assert last.json()["choices"][0]["message"]["content"]
    for answer in refused:
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", None)
        assert error["message"] in REFUSALS
        assert int(answer.headers["retry-after"]) >= 1


def test_model_comes_back_by_itself(service: Service, key: str, broken: Broken) -> None:
    assert ask(service, key).status_code == 200
    (after,) = service.running(CHAT)
    assert after.replica_id != broken.replica.replica_id


def test_no_process_of_the_dead_is_left(broken: Broken) -> None:
    def left() -> list[str]:
        return [describe(process) for process in broken.processes if is_living(process)]

    eventually(lambda: not left(), 30, f"nothing is left of {CHAT}")
