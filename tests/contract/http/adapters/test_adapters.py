"""Adapters as a client meets them: models of their own, for those who may see them."""

import asyncio
from dataclasses import replace

import openai
import orjson
import pytest

from deployments.models.client.directory import ConfiguredDirectory
from deployments.models.contract.engine import Adapter
from serve_app.operations.safety.policy import SafetyConfig
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, answer
from tests.contract.http.background_calls import ended, kill, taken_over
from tests.contract.http.batch_calls import finish, jsonl, line, submit
from tests.twins.engine import Script
from tests.waiting import eventually

OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrs"
ONE, OWN = f"{MODEL}:one", f"{MODEL}:own"
MESSAGES = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(autouse=True)
def adapted(world):
    """The world's chat model with two adapters; one account sees only one of them."""
    world.chat.card = replace(world.chat.card, adapters=(Adapter("one"), Adapter("own", frozenset({"acct_1"}))))
    world.directory = ConfiguredDirectory([(world.chat, ("chat",)), (world.embeddings, ())])
    world.principal(OTHER, key_id="key_2", account="acct_2")


async def test_each_account_is_shown_the_adapters_that_it_may_use(world):
    shown = [model.id async for model in world.client().models.list()]
    assert shown == [MODEL, ONE, OWN, EMBEDDING_MODEL]
    assert [model.id async for model in world.client(OTHER).models.list()] == [MODEL, ONE, EMBEDDING_MODEL]
    assert (await world.client().models.retrieve(OWN)).id == OWN
    with pytest.raises(openai.NotFoundError):
        await world.client(OTHER).models.retrieve(OWN)


@pytest.mark.parametrize("name", [ONE, "chat:one"])
async def test_an_adapter_answers_and_is_counted_under_its_name(world, name):
    client = world.client()
    await client.chat.completions.create(model=name, messages=MESSAGES)
    await client.completions.create(model=name, prompt="Say")
    response = await client.responses.create(model=name, input="x")
    await client.responses.create(model=name, input="y", previous_response_id=response.id)
    assert [request.adapter for request in world.chat.requests] == ["one"] * 4
    assert response.model == ONE
    assert [record.model for record in world.log.records] == [ONE] * 4


async def test_what_is_no_adapter_of_this_account_does_not_exist(world):
    names = [f"{MODEL}:{name}" for name in ("two", "", "../one", "one/../own", "/etc/passwd", "one\0", "one:own")]
    for secret, name in [(OTHER, OWN), *((None, name) for name in names)]:
        client = world.client(secret) if secret else world.client()
        with pytest.raises(openai.NotFoundError, match="does not exist or you do not have access") as refused:
            await client.chat.completions.create(model=name, messages=MESSAGES)
        assert refused.value.code == "model_not_found"
    assert world.chat.requests == []


async def test_an_adapter_of_another_account_is_not_suggested(world):
    for client, suggested in ((world.client(), OWN), (world.client(OTHER), ONE)):
        with pytest.raises(openai.NotFoundError) as refused:
            await client.models.retrieve(f"{OWN[:-1]}e")
        assert f"Did you mean `{suggested}`?" in refused.value.message


async def test_scopes_name_adapters_too(world):
    world.principal(models=(MODEL,))
    with pytest.raises(openai.NotFoundError):
        await world.client().chat.completions.create(model=ONE, messages=MESSAGES)
    world.principal(models=(f"{MODEL}:*",))
    await world.client().chat.completions.create(model=ONE, messages=MESSAGES)
    with pytest.raises(openai.NotFoundError):
        await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)


async def test_the_safety_policy_of_a_model_holds_for_its_adapters(world):
    world.safety[MODEL] = SafetyConfig(patterns=("hello",))
    told = await world.client().chat.completions.create(model=ONE, messages=[{"role": "user", "content": "hello"}])
    assert told.choices[0].finish_reason == "content_filter"


async def test_a_background_response_goes_on_with_its_adapter(world):
    world.chat.script = lambda request: Script([*answer(request).steps[:1], asyncio.Event()])
    begun = await world.client().responses.create(model=ONE, input="x", background=True)
    await eventually(lambda: world.chat.streams and world.chat.streams[-1].num_pieces)
    await kill(world, world.runners[-1])
    world.chat.script = answer
    final = await ended(await taken_over(world), begun.id)
    assert (final.status, final.model) == ("completed", ONE)
    assert [request.adapter for request in world.chat.requests] == ["one", "one"]


async def test_lines_of_batches_name_adapters(world, batching):
    client = world.client()
    lines = [line(number, body={"model": name, "messages": MESSAGES}) for number, name in enumerate((ONE, OWN, MODEL))]
    batch = await finish(client, await submit(client, jsonl(*lines)))
    assert batch.request_counts.completed == 3
    assert sorted(str(request.adapter) for request in world.chat.requests) == ["None", "one", "own"]
    other = world.client(OTHER)
    batch = await finish(other, await submit(other, jsonl(*lines)))
    told = [orjson.loads(one) for one in (await other.files.content(batch.output_file_id)).content.splitlines()]
    codes = [(one["error"] and one["error"]["code"]) or one["response"]["status_code"] for one in told]
    assert codes[0] == codes[2] == 200
    assert codes[1] != 200
