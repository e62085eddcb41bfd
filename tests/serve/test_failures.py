"""Processes that die under the service's feet, whatever their engine is: no hang, and recovery by itself."""

import httpx2
import psutil
import pytest

from tests.service import CHAT, Service, eventually

pytestmark = [pytest.mark.serve, pytest.mark.exhaustive, pytest.mark.timeout(1200)]


def ask(service: Service, key: str, model: str) -> httpx2.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
    headers = {"authorization": f"Bearer {key}"}
    return httpx2.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=150)


def test_killed_ingress_replica_is_replaced_and_the_other_serves_on(service: Service, key: str) -> None:
    victim = service.running("ingress")[0]
    psutil.Process(victim.pid).kill()

    def answers_in_a_row() -> bool:
        return all(ask(service, key, CHAT).status_code == 200 for _ in range(5))

    eventually(answers_in_a_row, 60, "requests are answered")
    eventually(
        lambda: [one for one in service.running("ingress") if one.replica_id != victim.replica_id][1:],
        120,
        "a second ingress replica runs",
    )
    assert all(ask(service, key, CHAT).status_code == 200 for _ in range(20))
