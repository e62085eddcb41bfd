"""Rate limits as a client meets them."""

import asyncio
import re

import openai
import pytest

from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import Overloaded
from deployments.patience import USUAL
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, WORDS, answer, pieces, said
from tests.twins.engine import Script
from tests.unit.limits import memory as gatekeepers
from tests.unit.limits.memory import principal_of, secret_of, stored
from tests.waiting import eventually

MESSAGES = [{"role": "user", "content": "Say hello."}]
CHAT = {"model": MODEL, "messages": MESSAGES}
DURATION = re.compile(r"^(\d+h)?(\d+m)?(\d+(\.\d+)?s|\d+ms)$")


async def test_every_answer_carries_the_limits(world):
    async with world.http() as http:
        answers = [
            await http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 10}),
            await http.post("/v1/chat/completions", json={**CHAT, "stream": True}),
            await http.post("/v1/chat/completions", json={"model": "none"}),
            await http.get("/v1/models"),
        ]
    for told in answers:
        assert told.headers["x-ratelimit-limit-requests"] == "1000"
        assert told.headers["x-ratelimit-limit-tokens"] == "1000000"
        assert DURATION.match(told.headers["x-ratelimit-reset-requests"])
        assert DURATION.match(told.headers["x-ratelimit-reset-tokens"])
        assert told.headers["openai-version"] == "2020-10-01"
        assert told.headers["openai-organization"] == "org-one"
        assert int(told.headers["openai-processing-ms"]) >= 0
    assert [told.headers["x-ratelimit-remaining-requests"] for told in answers] == ["999", "998", "997", "997"]


async def test_requests_beyond_the_limit_are_429_with_the_true_wait(world):
    world.principal(requests_per_minute=2)
    async with world.http() as http:
        await http.post("/v1/chat/completions", json=CHAT)
        world.clock.advance(10)
        await http.post("/v1/chat/completions", json=CHAT)
        refused = await http.post("/v1/chat/completions", json=CHAT)
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert (error["type"], error["code"], error["param"]) == ("requests", "rate_limit_exceeded", None)
        assert "Limit 2, Used 2, Requested 1. Please try again in 50s." in error["message"]
        assert refused.headers["retry-after"] == "50"
        assert refused.headers["retry-after-ms"] == "50000"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        world.clock.advance(50.001)
        assert (await http.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert world.log.records[2].code == "rate_limit_exceeded"


async def test_refused_request_is_never_parsed(world):
    world.principal(requests_per_minute=1)
    async with world.http() as http:
        await http.post("/v1/chat/completions", json=CHAT)
        assert (await http.post("/v1/chat/completions", content=b"{")).status_code == 429


async def test_tokens_are_settled_to_what_was_used(world):
    async with world.http() as http:
        told = await http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 500})
        assert told.headers["x-ratelimit-remaining-tokens"] == str(1_000_000 - 12)
        told = await http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 500, "stream": True})
        assert int(told.headers["x-ratelimit-remaining-tokens"]) < 1_000_000 - 500
        told = await http.get("/v1/models")
        assert told.headers["x-ratelimit-remaining-tokens"] == str(1_000_000 - 24)


async def test_concurrent_requests_cannot_pass_the_token_limit(world):
    world.principal(tokens_per_minute=2_000)
    release = asyncio.Event()
    world.chat.script = lambda request: Script([release, *pieces(request, said(*WORDS))], Usage(9, 600))
    async with world.http() as http:
        asked = [
            asyncio.create_task(http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 600})) for _ in range(9)
        ]
        await eventually(lambda: sum(task.done() for task in asked) == 6)
        release.set()
        statuses = sorted([(await task).status_code for task in asked])
    assert statuses == [200] * 3 + [429] * 6


async def test_request_that_never_fits_is_told_so(world):
    world.principal(tokens_per_minute=40_000)
    async with world.http() as http:
        refused = await http.post("/v1/chat/completions", json={**CHAT, "n": 20, "max_tokens": 4000})
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert error["type"] == "tokens"
    assert error["message"].startswith(f"Request too large for {MODEL} in organization org-one on tokens per min (TPM)")
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers


async def test_request_without_a_bound_fits_a_small_key(world):
    world.principal(tokens_per_minute=500)
    completion = await world.client().chat.completions.create(**CHAT)
    assert completion.choices[0].message.content == "".join(WORDS)


async def test_embeddings_longer_than_the_model_cost_only_what_it_reads(world):
    world.principal(tokens_per_minute=600)
    answer = await world.client().embeddings.create(model=EMBEDDING_MODEL, input="word " * 10_000)
    assert len(answer.data) == 1


async def test_client_retries_after_the_wait_it_was_told(world):
    waits = []
    world.principal(requests_per_minute=1)
    client = world.client(max_retries=2)
    client._sleep_for_retry = _counted(client, waits, world)
    await client.chat.completions.create(**CHAT)
    world.clock.advance(59.75)
    completion = await client.chat.completions.create(**CHAT)
    assert completion.choices
    assert waits == [0.25]


def _counted(client, waits, world):
    async def sleep(*, retries_taken, max_retries, options, response):
        seconds = client._calculate_retry_timeout(max_retries - retries_taken, options, response.headers)
        waits.append(seconds)
        world.clock.advance(seconds)

    return sleep


async def test_client_retries_when_the_engine_is_full(world):
    scripts = [Script([Overloaded("full", 0.01)]), Script([Overloaded("full", 0.01)])]
    world.chat.script = lambda request: scripts.pop() if scripts else answer(request)
    completion = await world.client(max_retries=2).chat.completions.create(**CHAT)
    assert completion.choices
    assert len(world.chat.requests) == 3


async def test_client_does_not_retry_what_never_fits(world):
    world.principal(tokens_per_minute=100)
    with pytest.raises(openai.RateLimitError):
        await world.client(max_retries=2).chat.completions.create(**CHAT, max_tokens=2000)
    assert len(world.log.records) == 1


async def test_revoked_key_is_refused_before_another_request_is_let_in(world):
    shared = gatekeepers.World(principal_of("known"))
    world.gatekeeper = shared.client()  # The real one; the twin would only show what the twin does.
    client = world.client(secret_of("known"))
    await client.models.list()
    shared.change(stored(2, "known", None))
    shared.clock.advance(USUAL.trust_s)
    with pytest.raises(openai.AuthenticationError) as refused:
        await client.models.list()
    assert refused.value.code == "invalid_api_key"


async def test_known_key_works_within_its_limit_while_the_gatekeeper_is_away(world):
    shared = gatekeepers.World(principal_of("known", requests=3), principal_of("unknown"))
    world.gatekeeper = shared.client()  # The real one; the twin would only show what the twin does.
    known, unknown = (world.client(secret_of(name)) for name in ("known", "unknown"))
    await known.models.list()
    shared.is_down = True
    for _ in range(3):
        assert (await known.chat.completions.create(**CHAT)).choices
    with pytest.raises(openai.RateLimitError, match="Limit 3, Used 3, Requested 1"):
        await known.chat.completions.create(**CHAT)
    with pytest.raises(openai.InternalServerError) as refused:
        await unknown.chat.completions.create(**CHAT)
    assert refused.value.status_code == 503
    assert len(world.chat.requests) == 3
