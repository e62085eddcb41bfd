"""Service tiers as a client meets them: what is asked for, what is served and named, and what it counts."""

import asyncio

import openai
import orjson
import pytest

from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.state.identity.tiers import TierLimits, Tiers
from serve_app.operations.safety.policy import SafetyConfig
from tests.contract.http.answers import MODEL, SECRET, USAGE, answer
from tests.contract.http.background_calls import ended, kill, taken_over
from tests.contract.http.batch_calls import finish, jsonl, line, submit
from tests.contract.http.conftest import serve
from tests.contract.http.response_calls import stream_of
from tests.contract.http.responses.test_responses_socket import Socket, connect
from tests.twins.engine import Script
from tests.twins.legal import fold
from tests.waiting import eventually

MESSAGES = [{"role": "user", "content": "Say hello."}]
CHAT = {"model": MODEL, "messages": MESSAGES}
SERVED = {"flex": ("flex", 1), "priority": ("priority", -1), "fast": ("priority", -1)}
USUAL = ("default", 0)
FULL = [Overloaded("full", 2.0)]


def allow_priority(world, **more) -> None:
    limits = TierLimits(
        requests_per_minute=1000, tokens_per_minute=1_000_000, enqueued_tokens=None, **{"priority": True, **more}
    )
    world.tiers = Tiers({"standard": limits.model_dump()})


def last(world):
    """Return the tier and the priority that the engine was asked for last."""
    return world.chat.requests[-1].service_tier, world.chat.requests[-1].priority


@pytest.mark.parametrize("has_policy", [False, True])
@pytest.mark.parametrize("asked", ["flex", "priority", "fast", "scale", "default", "auto", None])
async def test_the_tier_that_is_served_is_named(world, asked, has_policy):
    allow_priority(world)
    if has_policy:
        world.safety[MODEL] = SafetyConfig(patterns=("never found",))
    tier, priority = SERVED.get(asked, USUAL)
    client = world.client()
    whole = await client.chat.completions.create(**CHAT, service_tier=asked)
    assert (whole.service_tier, *last(world)) == (tier, tier, priority)
    stream = await client.chat.completions.create(**CHAT, service_tier=asked, stream=True)
    assert {chunk.service_tier async for chunk in stream} == {tier}
    assert last(world) == (tier, priority)
    response = await client.responses.create(model=MODEL, input="x", service_tier=asked)
    assert (response.service_tier, *last(world)) == (tier, tier, priority)
    assert (await client.responses.retrieve(response.id)).service_tier == tier
    events = await stream_of(world, {"input": "x", "service_tier": asked})
    assert {event["response"]["service_tier"] for event in events if "response" in event} == {tier}
    assert last(world) == (tier, priority)


@pytest.mark.parametrize(("tier", "sum_of_both"), [("flex", 8), ("default", 7), ("priority", 6), (None, 7)])
async def test_the_priority_of_a_request_is_added_to_that_of_its_tier(world, tier, sum_of_both):
    allow_priority(world)
    await world.client().chat.completions.create(**CHAT, service_tier=tier, extra_body={"priority": 7})
    assert last(world) == (tier or "default", sum_of_both)
    await world.client().chat.completions.create(**CHAT, service_tier=tier, extra_body={"priority": None})
    assert last(world) == (tier or "default", sum_of_both - 7)


@pytest.mark.parametrize("asked", ["priority", "fast"])
async def test_a_key_without_the_right_to_priority_is_served_as_usual(world, asked):
    whole = await world.client().chat.completions.create(**CHAT, service_tier=asked)
    assert (whole.service_tier, *last(world)) == ("default", *USUAL)


async def test_the_engine_gets_the_same_body_in_every_tier(world):
    client = world.client()
    for tier in ("flex", "default"):
        await client.chat.completions.create(**CHAT, service_tier=tier)
    assert len({request.body for request in world.chat.requests}) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
async def test_a_flex_request_without_a_place_is_429_and_counts_no_tokens(world, path, stream):
    world.chat.script = lambda request: Script(FULL)
    body = {"model": MODEL, "stream": stream, **({"messages": MESSAGES} if "chat" in path else {"input": "x"})}
    async with world.http() as http:
        refused = await http.post(f"/v1/{path}", json={**body, "service_tier": "flex"})
        usual = await http.post(f"/v1/{path}", json=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["type"], error["code"]) == (429, "resource_unavailable", "resource_unavailable")
    assert refused.headers["retry-after"] == "2"
    assert usual.status_code == 503
    assert refused.headers["x-ratelimit-remaining-tokens"] == "1000000"
    assert [record.code for record in world.log.records] == ["resource_unavailable", None]


async def test_the_client_tries_a_flex_request_again(world):
    scripts = [Script([Overloaded("full", 0.01)])]
    world.chat.script = lambda request: scripts.pop() if scripts else answer(request)
    whole = await world.client(max_retries=1).chat.completions.create(**CHAT, service_tier="flex")
    assert whole.service_tier == "flex"
    world.chat.script = lambda request: Script(FULL)
    with pytest.raises(openai.RateLimitError, match="no place for flex requests"):
        await world.client().chat.completions.create(**CHAT, service_tier="flex")


async def test_other_failures_of_a_flex_request_are_as_usual(world):
    world.chat.script = lambda request: Script([EngineDied("gone")])
    with pytest.raises(openai.InternalServerError) as failed:
        await world.client().chat.completions.create(**CHAT, service_tier="flex")
    assert failed.value.status_code == 503


async def test_a_flex_client_that_leaves_ends_its_generation(world, live):
    stands = asyncio.Event()
    world.chat.script = lambda request: Script([*answer(request).steps[:1], stands])
    async with openai.AsyncOpenAI(api_key=SECRET, base_url=f"{live}/v1", max_retries=0) as client:
        stream = await client.chat.completions.create(**CHAT, service_tier="flex", stream=True)
        await anext(stream)
        await stream.close()
        await eventually(lambda: world.chat.streams[-1].is_aborted)


async def test_flex_tokens_count_by_their_weight(world):
    client, total = world.client(), USAGE.total_tokens
    assert total == 12
    for tier in ("flex", "default", "priority"):
        await client.chat.completions.create(**CHAT, service_tier=tier, max_tokens=100)
    await client.responses.create(model=MODEL, input="x", service_tier="flex", max_output_tokens=100)
    reserved, used = zip(*[(reserved, used) for _, reserved, used in world.gatekeeper.settled], strict=True)
    assert used == (6, 12, 12, 6)
    assert reserved[0] * 2 in (reserved[1], reserved[1] + 1)
    told = [(record.service_tier, record.discounted_tokens) for record in world.log.records]
    assert told == [("flex", 6), (None, 0), (None, 0), ("flex", 6)]


async def test_the_weight_is_the_tier_s(world):
    allow_priority(world, flex_token_weight=0.25)
    client = world.client()
    for tier in ("flex", "priority"):
        await client.chat.completions.create(**CHAT, service_tier=tier)
    assert [used for _, _, used in world.gatekeeper.settled] == [3, 12]
    assert [record.service_tier for record in world.log.records] == ["flex", "priority"]


async def test_a_flex_request_that_fits_by_its_weight_is_taken(world):
    world.principal(tokens_per_minute=100)
    async with world.http() as http:
        body = {**CHAT, "max_tokens": 150}
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 429
        assert (await http.post("/v1/chat/completions", json={**body, "service_tier": "flex"})).status_code == 200


async def test_a_background_response_keeps_its_tier_where_another_runner_goes_on(world):
    stands = asyncio.Event()
    world.chat.script = lambda request: Script([*answer(request).steps[:1], stands])
    client = world.client()
    begun = await client.responses.create(model=MODEL, input="x", service_tier="flex", background=True)
    assert begun.service_tier == "flex"
    await eventually(lambda: world.chat.streams and world.chat.streams[-1].num_pieces)
    await kill(world, world.runners[-1])
    world.gatekeeper.settled.clear()
    world.chat.script = answer
    final = await ended(await taken_over(world), begun.id)
    assert (final.status, final.service_tier, *last(world)) == ("completed", "flex", "flex", 1)
    await eventually(lambda: [used for _, _, used in world.gatekeeper.settled] == [6])
    (record,) = [record for record in world.log.records if record.total_s and "background" in record.route][-1:]
    assert (record.service_tier, record.discounted_tokens) == ("flex", 6)


async def test_lines_of_batches_are_served_as_lines(world, batching):
    body = {**CHAT, "service_tier": "flex"}
    client = world.client()
    batch = await finish(client, await submit(client, jsonl(line(0, body=body))))
    told = orjson.loads((await client.files.content(batch.output_file_id)).content)
    assert told["response"]["body"]["service_tier"] == "default"
    assert last(world) == ("default", 10)


async def test_a_socket_serves_in_tiers(world):
    async with serve(world.app(), ws="websockets-sansio") as address:
        place = address.replace("http", "ws") + "/v1/responses"
        async with connect(place, additional_headers={"authorization": f"Bearer {SECRET}"}) as connection:
            final = fold(await Socket(connection).turn(input="x", service_tier="flex"))
    assert (final["service_tier"], *last(world)) == ("flex", "flex", 1)
    await eventually(lambda: [used for _, _, used in world.gatekeeper.settled] == [6])
