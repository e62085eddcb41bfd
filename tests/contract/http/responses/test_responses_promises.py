"""What a response promises beside its text: every setting echoed, nothing between a caller and the first token."""

import asyncio

import openai

from tests.contract.http.answers import MODEL, SECRET
from tests.contract.http.background_calls import held
from tests.contract.http.conftest import serve
from tests.contract.http.response_calls import WEATHER
from tests.twins.legal import KEYS, fold, split

SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
SETTINGS = {
    "instructions": "Be kind.",
    "max_output_tokens": 50,
    "max_tool_calls": 2,
    "metadata": {"a": "b"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s",
    "temperature": 0.5,
    "text": {
        "format": {"type": "json_schema", "name": "n", "description": "d", "schema": SCHEMA, "strict": True},
        "verbosity": "low",
    },
    "tool_choice": {"type": "function", "name": "weather"},
    "tools": [{**WEATHER, "strict": True}],
    "top_logprobs": 2,
    "top_p": 0.25,
    "truncation": "auto",
    "user": "u",
}


async def test_every_setting_is_echoed_streamed_or_not(world):
    body = {"model": MODEL, "input": "x", **SETTINGS}
    async with world.http() as http:
        whole = (await http.post("/v1/responses", json=body)).json()
        streamed = fold(split((await http.post("/v1/responses", json={**body, "stream": True})).content))
    for told in (whole, streamed):
        assert set(told) == KEYS
        assert {name: told[name] for name in SETTINGS} == SETTINGS


async def test_an_alias_is_echoed_as_the_model_that_answers(world):
    assert (await world.client().responses.create(model="chat", input="x")).model == MODEL


async def test_nothing_is_stored_before_the_text_has_been_sent(world, monkeypatch):
    saving = asyncio.Event()

    async def save(store, account, turn, **kwargs):
        saving.set()
        return turn

    monkeypatch.setattr("deployments.state.responses.store.ResponseStore.save", save)
    release, world.chat.script = held("One ", "two.")
    async with serve(world.app()) as address:
        client = openai.AsyncOpenAI(api_key=SECRET, base_url=address + "/v1", max_retries=0)
        async with client.responses.stream(model=MODEL, input="x") as stream:
            async for event in stream:
                if event.type == "response.output_text.delta" and not release.is_set():
                    assert not saving.is_set()
                    release.set()
        await client.close()
    assert saving.is_set()
