"""The three operations through the real client, when everything goes well."""

import openai
import orjson
import pytest

from deployments.models.contract.engine import payer_of
from serve_app.operations.safety.policy import SafetyConfig
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, USAGE, VECTOR, WORDS
from tests.contract.http.response_calls import calls, script

MESSAGES = [{"role": "user", "content": "Say hello."}]


async def test_chat_answers_when_asked(world):
    completion = await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    assert completion.choices[0].message.content == "".join(WORDS)
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.total_tokens == USAGE.total_tokens
    assert completion.usage.prompt_tokens_details.cached_tokens == USAGE.cached_tokens
    assert completion._request_id.startswith("req_")


async def test_chat_streams_when_asked(world):
    stream = await world.client().chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "".join(WORDS)
    assert chunks[-1].usage.completion_tokens == USAGE.completion_tokens


async def test_chat_returns_every_choice_when_n_is_two(world):
    completion = await world.client().chat.completions.create(model=MODEL, messages=MESSAGES, n=2)
    assert [choice.index for choice in completion.choices] == [0, 1]


async def test_engine_gets_the_accounts_salt_and_never_the_clients_alone(world):
    world.principal("sk-manta-another-secret-0000", key_id="key_2", account="acct_2")
    mine, others = world.client(), world.client("sk-manta-another-secret-0000")
    for client, own in (
        (mine, {}),
        (mine, {"cache_salt": "x"}),
        (mine, {"cache_salt": "x"}),
        (others, {"cache_salt": "x"}),
    ):
        await client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=own)
    plain, salted, again, foreign = world.chat.requests
    accounts = [payer_of(request.cache_salt)[0] for request in world.chat.requests]
    assert {len(account) for account in accounts} == {32}
    assert accounts[0] == accounts[1] == accounts[2] != accounts[3]
    assert salted.cache_salt == again.cache_salt
    assert len({request.cache_salt for request in world.chat.requests}) == 3
    assert plain.affinity
    assert foreign.cache_salt != salted.cache_salt
    assert orjson.loads(salted.body) == orjson.loads(plain.body)


async def test_a_salt_that_is_anothers_salt_opens_no_cache(world):
    """The salt of an account is no secret to the engine; still, to send it is to get a cache of one's own."""
    await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    stolen = world.chat.requests[0].cache_salt
    world.principal("sk-manta-another-secret-0000", key_id="key_2", account="acct_2")
    other = world.client("sk-manta-another-secret-0000")
    await other.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"cache_salt": stolen})
    assert world.chat.requests[1].cache_salt != stolen


async def test_a_request_may_only_make_itself_later(world):
    client = world.client()
    for priority in (0, 7):
        await client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"priority": priority})
        await client.completions.create(model=MODEL, prompt="Say hello.", extra_body={"priority": priority})
    assert [request.priority for request in world.chat.requests] == [0, 0, 7, 7]
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"priority": -1})
    assert refused.value.param == "priority"


async def test_a_budget_for_thoughts_needs_a_model_that_thinks(world):
    client = world.client()
    await client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"thinking_token_budget": -1})
    for ask in (
        lambda own: client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=own),
        lambda own: client.completions.create(model=MODEL, prompt="Say hello.", extra_body=own),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            await ask({"thinking_token_budget": 5})
        assert (refused.value.param, refused.value.code) == ("thinking_token_budget", "unsupported_parameter")


async def test_embeddings_have_their_own_salt_too(world):
    world.principal("sk-manta-another-secret-0000", key_id="key_2", account="acct_2")
    mine, others = world.client(), world.client("sk-manta-another-secret-0000")
    for client, own in ((mine, {}), (mine, {"cache_salt": "x"}), (others, {}), (others, {"cache_salt": "x"})):
        await client.embeddings.create(model=EMBEDDING_MODEL, input="a", extra_body=own)
    assert len({request.cache_salt for request in world.embeddings.requests}) == 4


async def test_accounts_get_different_salts_and_affinities(world):
    world.principal("sk-manta-another-secret-0000", key_id="key_2", account="acct_2")
    await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    await world.client("sk-manta-another-secret-0000").chat.completions.create(model=MODEL, messages=MESSAGES)
    one, other = world.chat.requests
    assert one.cache_salt != other.cache_salt
    assert one.affinity != other.affinity


@pytest.mark.parametrize("is_stream", [False, True])
async def test_completions_answer_when_asked(world, is_stream):
    answer = await world.client().completions.create(model=MODEL, prompt="Say hello.", stream=is_stream)
    if is_stream:
        assert "".join([c.choices[0].text async for c in answer]) == "".join(WORDS)
    else:
        assert answer.choices[0].text == "".join(WORDS)


async def test_embeddings_decode_when_the_client_asks_its_default_way(world):
    answer = await world.client().embeddings.create(model=EMBEDDING_MODEL, input=["a", "b"])
    assert [tuple(item.embedding) for item in answer.data] == [VECTOR, VECTOR]
    assert orjson.loads(world.embeddings.requests[0].body)["encoding_format"] == "base64"


async def test_embeddings_are_numbers_when_float_is_asked_for(world):
    answer = await world.client().embeddings.create(model=EMBEDDING_MODEL, input="a", encoding_format="float")
    assert tuple(answer.data[0].embedding) == VECTOR


async def test_models_are_listed_and_retrieved(world):
    client = world.client()
    assert [model.id async for model in client.models.list()] == [MODEL, EMBEDDING_MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL


@pytest.mark.parametrize("path", ["/v1/models/demo/chat", "/v1/models/demo%2Fchat", "/v1/models/demo/chat/"])
async def test_model_is_found_when_its_slash_is_raw_or_encoded(world, path):
    async with world.http() as http:
        answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.json() == {
        "id": MODEL,
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "manta",
        "max_model_len": 4096,
        "context_length": 4096,
        "capabilities": answer.json()["capabilities"],
    }


async def test_alias_leads_to_the_model(world):
    await world.client().chat.completions.create(model="chat", messages=MESSAGES)
    assert world.log.records[0].model == MODEL


@pytest.mark.parametrize("policy", [None, SafetyConfig(patterns=("forbidden",))], ids=["plain", "checked"])
async def test_who_sends_functions_reads_a_function_call(world, policy):
    if policy is not None:
        world.safety = {MODEL: policy}
    script(world, calls(("get_weather", {"city": "Tallinn"}), words=("Let me see.",)))
    function = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    ask = {"model": MODEL, "messages": [{"role": "user", "content": "Weather?"}]}
    completions = world.client().chat.completions
    answer = await completions.create(**ask, functions=[function])
    (choice,) = answer.choices
    assert choice.finish_reason == "function_call"
    assert (choice.message.function_call.name, choice.message.tool_calls) == ("get_weather", None)
    assert orjson.loads(choice.message.function_call.arguments) == {"city": "Tallinn"}
    chunks = [chunk.choices[0] async for chunk in await completions.create(**ask, functions=[function], stream=True)]
    told = [chunk.delta.function_call for chunk in chunks if chunk.delta.function_call is not None]
    assert [one.name for one in told if one.name] == ["get_weather"]
    assert orjson.loads("".join(one.arguments or "" for one in told)) == {"city": "Tallinn"}
    assert not any(chunk.delta.tool_calls for chunk in chunks)
    assert chunks[-1].finish_reason == "function_call"
    assert orjson.loads(world.chat.requests[0].body)["parallel_tool_calls"] is False
    tools = await completions.create(**ask, tools=[{"type": "function", "function": function}])
    assert (tools.choices[0].finish_reason, tools.choices[0].message.function_call) == ("tool_calls", None)
