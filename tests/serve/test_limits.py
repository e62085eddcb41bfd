"""Keys and limits over several ingress replicas: exact however many clients ask at once, and wherever."""

import asyncio
import json
import time
from collections import Counter
from typing import Any

import httpx2
import pytest

from deployments.limits.snapshots import load_snapshot
from deployments.state.identity.keys import KeyChange
from tests.serve.ingress import serving
from tests.service import CHAT, EMBED, Service, eventually
from tests.waiting import eventually as soon

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": CHAT, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 2, **fields}


async def ask(http: httpx2.AsyncClient, url: str, secret: str, **fields: Any) -> httpx2.Response:
    headers = {"authorization": f"Bearer {secret}"}
    return await http.post(f"{url}/v1/chat/completions", json=body(**fields), headers=headers)


@pytest.mark.parametrize("way", [pytest.param("through the front", marks=pytest.mark.exhaustive), "replica by replica"])
async def test_free_key_gets_exactly_ten_requests_of_many_at_once(service: Service, way: str) -> None:
    _, secret = await service.issue(tier="free", account="many")
    urls = [service.url]
    if way != "through the front":  # A test before may have killed a replica.
        urls = eventually(lambda: found if len(found := serving(service)) >= 2 else [], 90, "two replicas run")
    began = time.monotonic()

    async def ask_number(number: int) -> tuple[httpx2.Response, float]:
        answer = await ask(http, urls[number % len(urls)], secret)
        return answer, time.monotonic() - began

    async with httpx2.AsyncClient(timeout=60) as http:
        answers = await asyncio.gather(*map(ask_number, range(40)))
        answers += [await ask_number(number) for number in range(60)]  # What one gives back, another may get.
    assert answers[-1][1] < 60, "the minute has slid on: nothing can be said"
    assert Counter(answer.status_code for answer, _ in answers) == {200: 10, 429: len(answers) - 10}
    for refused, after_s in answers:
        if refused.status_code == 429:
            error = refused.json()["error"]
            assert (error["type"], error["code"], error["param"]) == ("requests", "rate_limit_exceeded", None)
            assert "on requests per min (RPM): Limit 10, Used 10, Requested 1." in error["message"]
            # What was lent out counts from when it is back.
            assert 60 - after_s - 1 < int(refused.headers["retry-after"]) <= 61
            assert 1000 * (60 - after_s - 1) < int(refused.headers["retry-after-ms"]) <= 61_000
            assert refused.headers["x-ratelimit-remaining-requests"] == "0"


async def test_tokens_of_a_minute_are_never_exceeded(service: Service) -> None:
    _, secret = await service.issue(tier="enterprise", requests_per_minute=1000, tokens_per_minute=600, account="few")
    urls = service.ingress_urls()
    headers = {"authorization": f"Bearer {secret}"}
    tokens = {"model": CHAT, "prompt": list(range(100, 120)), "max_tokens": 60}  # A prompt whose size is known.
    async with httpx2.AsyncClient(timeout=60) as http:
        answers = await asyncio.gather(
            *[
                http.post(f"{urls[number % len(urls)]}/v1/completions", json=tokens, headers=headers)
                for number in range(30)
            ]
        )
        used = sum(answer.json()["usage"]["total_tokens"] for answer in answers if answer.status_code == 200)
        assert Counter(answer.status_code for answer in answers).keys() == {200, 429}
        assert 300 < used <= 600
        for refused in (answer for answer in answers if answer.status_code == 429):
            assert refused.json()["error"]["type"] == "tokens"
            assert int(refused.headers["retry-after-ms"]) > 0

        never = await ask(http, service.url, secret, max_tokens=700)
    assert never.status_code == 429
    assert never.headers["x-should-retry"] == "false"
    assert never.json()["error"]["message"].startswith("Request too large for manta/demo-chat in organization few")


async def test_unused_tokens_are_given_back(service: Service) -> None:
    _, secret = await service.issue(
        tier="enterprise", requests_per_minute=1000, tokens_per_minute=1000, account="thrift"
    )
    async with httpx2.AsyncClient(timeout=60) as http:

        async def is_admitted() -> bool:
            answer = await ask(http, service.url, secret, max_tokens=900, stop=["a", "e", "i", "o"])
            assert answer.status_code in (200, 429), answer.text
            return answer.status_code == 200

        for _ in range(3):  # Each holds most of the minute, and uses little of it.
            await soon(is_admitted, 30)  # Far less than the minute for which it would be held.


async def test_every_answer_tells_what_is_left(service: Service) -> None:
    _, secret = await service.issue(tier="standard", account="curious")
    async with httpx2.AsyncClient(timeout=60) as http:
        for stream in (False, True):
            headers = (await ask(http, service.url, secret, stream=stream)).headers
            assert headers["x-ratelimit-limit-requests"] == "60"
            assert headers["x-ratelimit-limit-tokens"] == "200000"
            assert 50 < int(headers["x-ratelimit-remaining-requests"]) < 60
            assert 190_000 < int(headers["x-ratelimit-remaining-tokens"]) <= 200_000
            assert headers["x-ratelimit-reset-requests"].endswith("s")


@pytest.mark.timed
async def test_revoked_key_is_refused_by_every_replica_within_a_second(service: Service) -> None:
    urls = [service.url, *service.ingress_urls()]
    issued, secret = await service.issue(tier="standard", account="gone")
    async with httpx2.AsyncClient(timeout=60) as http:
        assert {(await ask(http, url, secret)).status_code for url in urls} == {200}
        running = [asyncio.create_task(ask(http, url, secret, stream=True, max_tokens=3000)) for url in urls]
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in running)
        await service.with_keys(lambda keys: keys.revoke(issued.key_id))
        await asyncio.sleep(1.0)
        assert all(task.done() for task in running)
        assert all("was revoked" in task.result().text for task in running)
        refusals = [await ask(http, url, secret) for url in urls * 2]
    assert {refusal.status_code for refusal in refusals} == {401}
    assert {refusal.json()["error"]["code"] for refusal in refusals} == {"invalid_api_key"}
    assert secret not in refusals[0].text


async def test_changed_limits_and_scopes_hold_at_every_replica(service: Service) -> None:
    issued, secret = await service.issue(tier="free", account="changing")
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await ask(http, service.url, secret)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-ratelimit-limit-requests"] == "10"
        change = KeyChange(requests_per_minute=500, models=(EMBED,))
        await service.with_keys(lambda keys: keys.limit(issued.key_id, change))
        for url in service.ingress_urls():

            async def is_changed(url: str = url) -> bool:
                answer = await ask(http, url, secret)
                return (answer.status_code, answer.headers["x-ratelimit-limit-requests"]) == (404, "500")

            await soon(is_changed)


def test_commands_issue_and_revoke_keys_of_the_running_service(service: Service) -> None:
    issued = json.loads(service.run_command("keys", "create", "--name", "typed", "--account", "typed", "--json"))
    secret, key_id = issued["secret"], issued["key_id"]

    def status() -> int:
        headers = {"authorization": f"Bearer {secret}"}
        return httpx2.get(f"{service.url}/v1/models", headers=headers, timeout=30).status_code

    eventually(lambda: status() == 200, 20, "the new key is known")
    service.run_command("keys", "revoke", key_id)
    eventually(lambda: status() == 401, 20, "the revoked key is refused")


async def test_killed_gatekeeper_forgets_nothing_and_nobody_notices(service: Service, key: str) -> None:
    _, secret = await service.issue(tier="free", account="witness")
    urls = service.ingress_urls()
    before = service.process_named("ray::Gatekeeper")
    assert before is not None
    async with httpx2.AsyncClient(timeout=60) as http:
        began = time.monotonic()
        first = [await ask(http, urls[number % len(urls)], secret) for number in range(6)]
        assert {answer.status_code for answer in first} == {200}
        before.kill()
        killed_at, meanwhile = time.time(), []

        async def is_back() -> bool:
            """Ask each replica; then see whether another gatekeeper has saved what it knows, and all have asked it."""
            meanwhile.extend([(await ask(http, url, key)).status_code for url in urls])
            snapshot = await service.with_database(load_snapshot)
            ready = [(await http.get(f"{url}/readyz")).json()["checks"]["gatekeeper"] for url in urls]
            return snapshot.at > killed_at and all(ready)

        await soon(is_back, 45)
        assert set(meanwhile) == {200}
        rest = [await ask(http, urls[number % len(urls)], secret) for number in range(12)]
        assert time.monotonic() - began < 60, "the minute has slid on: nothing can be said"
        assert Counter(answer.status_code for answer in rest) == {200: 4, 429: 8}
