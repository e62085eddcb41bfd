"""Custom tools of chats, through OpenAI's client: calls, streams, history, choices."""

import orjson
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import calling_custom, messages, script

GRAMMAR = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "go [a-z]+"}}
GO = {"type": "custom", "custom": {"name": "go", "description": "Go somewhere.", "format": GRAMMAR}}
WEATHER = {"type": "function", "function": {"name": "weather"}}
HI = {"role": "user", "content": "Go."}
TEXT = 'go "home"\n'


@pytest.fixture
def chats(world):
    return world.client().chat.completions


async def test_a_custom_tool_is_called_and_its_output_is_read(world, chats):
    script(world, calling_custom(("call_1", "go", TEXT)), said("Done."))
    answer = await chats.create(model=MODEL, messages=[HI], tools=[GO, WEATHER])
    message = answer.choices[0].message
    (call,) = message.tool_calls
    assert (call.type, call.id, call.custom.name, call.custom.input) == ("custom", "call_1", "go", TEXT)
    output = {"role": "tool", "tool_call_id": "call_1", "content": "You are at home."}
    await chats.create(model=MODEL, messages=[HI, message, output], tools=[GO])
    (called,) = messages(world)[1]["tool_calls"]
    assert (called["function"]["name"], orjson.loads(called["function"]["arguments"])) == ("go", {"input": TEXT})


async def test_a_stream_has_the_input_in_pieces(world, chats):
    script(world, calling_custom(("call_1", "go", TEXT)))
    stream = await chats.create(model=MODEL, messages=[HI], tools=[GO], stream=True)
    deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
    calls = [call.model_dump() for delta in deltas for call in delta.tool_calls or ()]
    assert (calls[0]["type"], calls[0]["custom"]["name"]) == ("custom", "go")
    assert "".join(call["custom"]["input"] for call in calls) == TEXT
    assert len(calls) > 2


async def test_the_engine_reads_a_function_and_the_grammar(world, chats):
    script(world, said("Done."))
    await chats.create(
        model=MODEL, messages=[HI], tools=[WEATHER, GO], tool_choice={"type": "custom", "custom": {"name": "go"}}
    )
    body = orjson.loads(world.chat.requests[-1].body)
    assert body["custom_tools"] == {"go": 'root ::= "g" "o" " " [a-z] +'}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "go"}}
    assert body["tools"][1]["function"]["description"].startswith("Go somewhere.\n\n")


async def test_a_form_of_the_answer_beside_a_custom_tool_is_refused(world):
    body = {"model": MODEL, "messages": [HI], "tools": [GO], "structured_outputs": {"regex": "a"}}
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "structured_outputs")
    assert "custom" in answer.json()["error"]["message"]


async def test_schemas_of_functions_beside_it_are_bounded_only_in_their_size(world):
    script(world, said("Done."))
    loose = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 524_288}}}
    function = {"type": "function", "function": {"name": "write", "parameters": loose, "strict": False}}
    async with world.http() as http:
        body = {"model": MODEL, "messages": [HI], "tools": [GO, function]}
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_tokens_of_a_custom_tool_are_counted(world):
    async with world.http() as http:
        body = {"model": MODEL, "messages": [HI], "tools": [GO]}
        assert (await http.post("/v1/tokenize", json=body)).status_code == 200
    sent = orjson.loads(world.chat.requests[-1].body)
    assert sent["tools"][0]["type"] == "function"
    assert "custom_tools" not in sent
