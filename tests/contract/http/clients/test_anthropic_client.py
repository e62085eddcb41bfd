"""Anthropic's client for Python, unmodified, against the application behind a real server."""

import anthropic
import pytest

from tests.contract.http.answers import MODEL, SECRET, USAGE, WORDS
from tests.contract.http.conftest import serve
from tests.contract.http.response_calls import calling, script

ASK = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Say hello."}]}
WEATHER = {"name": "weather", "description": "Tell the weather.", "input_schema": {"type": "object"}}


@pytest.fixture
async def client(world):
    async with serve(world.app()) as address, anthropic.AsyncAnthropic(base_url=address, api_key=SECRET) as client:
        yield client


async def test_messages_are_created_and_streamed(world, client):
    message = await client.messages.create(**ASK)
    assert message.content[0].text == "".join(WORDS)
    async with client.messages.stream(**ASK) as stream:
        assert [text async for text in stream.text_stream] == list(WORDS)
        told = await stream.get_final_message()
    assert told.usage.output_tokens == USAGE.completion_tokens
    assert told.usage.input_tokens + told.usage.cache_read_input_tokens == USAGE.prompt_tokens


async def test_tools_are_called(world, client):
    script(world, calling(("call_1", "weather", '{"city":"Kiel"}')))
    async with client.messages.stream(**ASK, tools=[WEATHER]) as stream:
        told = await stream.get_final_message()
    assert (told.stop_reason, told.content[0].name, told.content[0].input) == ("tool_use", "weather", {"city": "Kiel"})


async def test_models_are_listed_in_its_format(client):
    first = (await client.models.list()).data[0]
    assert (first.id, first.type, first.max_input_tokens) == (MODEL, "model", 4096)
    assert (await client.models.retrieve(MODEL)).display_name == MODEL


async def test_errors_are_its_own(client):
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        await client.messages.create(**{**ASK, "model": "demo/none"})
    with pytest.raises(anthropic.AuthenticationError) as caught:
        await client.with_options(api_key="sk-manta-unknown").messages.create(**ASK)
    assert caught.value.request_id.startswith("req_")
