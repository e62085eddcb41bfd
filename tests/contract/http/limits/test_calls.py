"""How often a key may call what is not a model."""

import asyncio
import re

import pytest

from deployments.state.identity.tiers import Tiers
from serve_app.asgi import ROUTES
from tests.contract.http.answers import MODEL
from tests.contract.http.conftest import SECRET

OPEN = {"/openapi.json", "/docs", "/livez", "/readyz", "/ping", "/health", "/metrics"}
MODEL_CALLS = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/moderations",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/responses/compact",
    "/v1/rerank",
    "/rerank",
    "/v2/rerank",
    "/v1/score",
    "/score",
    "/tokenize",
    "/v1/tokenize",
    "/detokenize",
    "/v1/detokenize",
    "/v1/vector_stores/{vector_store_id}/search",
    "/v1/webhook_endpoints/{webhook_endpoint_id}/test",
}
"""What counts against `requests_per_minute`."""
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}]}


@pytest.fixture
def bounded(world) -> int:
    world.tiers = Tiers.model_validate({"standard": {"calls_per_minute": 3}})
    world.principal(is_admin=True)
    return 3


async def test_calls_beyond_the_limit_are_429_with_the_wait(world, bounded):
    async with world.http() as http:
        statuses = [(await http.get("/v1/models")).status_code for _ in range(bounded)]
        refused = await http.get("/v1/models")
    assert (statuses, refused.status_code) == ([200] * bounded, 429)
    error = refused.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("requests", "rate_limit_exceeded", None)
    assert re.search(
        r"calls per min.*: Limit 3, Used 3, Requested 1. Please try again in (59\.\d+|1m0)s", error["message"]
    )
    assert refused.headers["retry-after"] in ("59", "60")
    assert world.log.records[-1].code == "rate_limit_exceeded"
    assert world.log.records[-1].key_id is not None


async def test_every_route_counts_as_a_call_or_as_a_request(world, batch_stores, vector_stores, bounded):
    world.principal(is_admin=True, requests_per_minute=1)
    async with world.http() as http:
        await http.post("/v1/chat/completions", json=CHAT)
        for _ in range(bounded):
            await http.get("/v1/models")
        for route in ROUTES:
            if route.path in OPEN:
                continue
            path = re.sub(r"{\w+(:path)?}", "none", route.path)
            for method in route.methods - {"HEAD"}:
                is_request = method == "POST" and route.path in MODEL_CALLS
                query = {"start_time": "0"} if "/organization/" in path and "/admin" not in path else {}
                answer = await http.request(method, path, content=b"{}", params=query)
                message = answer.json()["error"]["message"]
                counted_as = "requests per min" if is_request else "calls per min"
                assert (answer.status_code, counted_as in message) == (429, True), f"{method} {path}: {message}"


async def test_calls_and_model_requests_do_not_take_from_each_other(world, bounded):
    async with world.http() as http:
        chats = [await http.post("/v1/chat/completions", json=CHAT) for _ in range(bounded + 1)]
        calls = [await http.get("/v1/models") for _ in range(bounded + 1)]
        again = await http.post("/v1/chat/completions", json=CHAT)
    assert [answer.status_code for answer in chats] == [200] * (bounded + 1)
    assert [answer.status_code for answer in calls] == [200] * bounded + [429]
    assert again.status_code == 200
    assert again.headers["x-ratelimit-remaining-requests"] == str(1000 - bounded - 2)


async def test_calls_at_once_cannot_pass_together_and_other_keys_go_on(world, bounded):
    world.principal("sk-other-" + SECRET, key_id="key_other")
    async with world.http() as http:
        answers = await asyncio.gather(*(http.get("/v1/models") for _ in range(20)))
        other = await http.get("/v1/models", headers={"authorization": f"Bearer sk-other-{SECRET}"})
    assert sorted(answer.status_code for answer in answers) == [200] * bounded + [429] * (20 - bounded)
    assert other.status_code == 200
