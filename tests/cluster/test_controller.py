"""A Serve controller that is killed: it comes back by itself and takes over every replica as it finds it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.service import CHAT, EMBED, TRAINED, Service, deployment_of, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.exhaustive, pytest.mark.timeout(1200)]

KEPT = {CHAT: 1, TRAINED: 1, EMBED: 1, "ingress": 2, "tool:code_interpreter": 1}
RECOVERY_S = 180.0

Pids = dict[str, dict[str, int]]


@dataclass
class TakeOver:
    """What was seen of a service whose controller was killed: process ids by replica, and what requests met."""

    controllers: list[int]
    before: Pids
    after: Pids = field(default_factory=dict)
    statuses: list[int | None] = field(default_factory=list)
    stream: list[str] = field(default_factory=list)


def running(service: Service) -> Pids:
    """Return the process id of each replica that serves; nothing while there is no controller to ask."""
    try:
        return {name: {one.replica_id: one.pid for one in service.running(name)} for name in KEPT}
    except (KeyError, JSONDecodeError):
        return {}


def at_rest(service: Service) -> Pids:
    """Return what runs, once that is what the configuration keeps and nothing comes or goes."""

    def look() -> Pids:
        pids = running(service)
        return pids if {name: len(replicas) for name, replicas in pids.items()} == KEPT else {}

    return eventually(look, RECOVERY_S, "every deployment has its smallest number of replicas")


def ask(service: Service, key: str, path: str, **body: Any) -> int | None:
    """Return the status of an answer, None where there is none within half a minute."""
    headers = {"authorization": f"Bearer {key}"}
    try:
        return httpx2.post(f"{service.url}/v1/{path}", json=body, headers=headers, timeout=30).status_code
    except httpx2.TransportError:
        return None


def embed(service: Service, key: str) -> int | None:
    return ask(service, key, "embeddings", model=EMBED, input="A cat sleeps.")


def chat(service: Service, key: str) -> int | None:
    messages = [{"role": "user", "content": "Hi."}]
    return ask(service, key, "chat/completions", model=CHAT, messages=messages, max_tokens=4)


def successor_of(service: Service, controller: psutil.Process) -> psutil.Process | None:
    """Return the controller that has taken another's place, None while there is none."""
    found = service.process_named("ray::ServeController")
    return None if found == controller else found


@pytest.fixture(scope="module")
def take_over(service: Service, key: str) -> TakeOver:
    """A service whose controller was killed beside requests and a stream, once another has taken over."""
    controller = service.process_named("ray::ServeController")
    assert controller is not None
    seen = TakeOver([controller.pid], at_rest(service))
    body = {"model": CHAT, "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 3900, "stream": True}
    headers = {"authorization": f"Bearer {key}"}
    url = f"{service.url}/v1/chat/completions"
    with (
        ThreadPoolExecutor() as pool,
        httpx2.stream("POST", url, json=body, headers=headers, timeout=120) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        controller.kill()
        while not (successor := successor_of(service, controller)) or not running(service):
            seen.statuses += pool.map(lambda request: request(service, key), (chat, embed, chat, embed))
        seen.stream = [line for line in lines if line and not line.startswith(":")]
    seen.after = at_rest(service)
    seen.controllers.append(successor.pid)
    return seen


def test_every_replica_stays_when_the_controller_is_killed(take_over: TakeOver) -> None:
    assert len(set(take_over.controllers)) == 2
    assert take_over.after == take_over.before


def test_requests_are_answered_while_there_is_no_controller(take_over: TakeOver) -> None:
    assert len(take_over.statuses) > 2
    assert set(take_over.statuses) == {200}
    assert take_over.stream[-1] == "data: [DONE]"


def test_new_controller_replaces_what_breaks_and_the_replicas_log_tells_of_it(
    service: Service, key: str, take_over: TakeOver
) -> None:
    (replica,) = service.running(EMBED)
    (details,) = service.deployments()[deployment_of(EMBED)]["replicas"]
    log = Path(f"{service.ray_dir}/session_latest/logs{details['log_file_path']}")
    written = len(log.read_text())
    service.engine_of(replica).kill()
    eventually(lambda: "Replica health check failed." in log.read_text()[written:], RECOVERY_S, "the log tells of it")

    def successor() -> bool:
        return [one.replica_id for one in service.running(EMBED)] not in ([], [replica.replica_id])

    eventually(successor, RECOVERY_S, "another replica runs")
    assert embed(service, key) == 200
