"""Custom tools of responses: how a model reads and calls them, and what clients get and send back."""

from dataclasses import replace

import openai
import orjson
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import (
    OTHER,
    WEATHER,
    calling,
    calling_custom,
    calls,
    lines_of,
    messages,
    script,
    stream_of,
)
from tests.twins.legal import fold, split

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "go " WORD LF?\n%import common (WORD, LF)'}
GO = {"type": "custom", "name": "go", "description": "Go somewhere.", "format": GRAMMAR}
NOTE = {"type": "custom", "name": "note"}
GROUP = {"type": "namespace", "name": "trip", "description": "Travel.", "tools": [GO, {**WEATHER, "strict": False}]}
TEXT = 'go "home"\n'


def output_of(call_id, output="x"):
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": output}


def asked(world, number=-1):
    return orjson.loads(world.chat.requests[number].body)


async def test_a_custom_tool_is_called_and_its_output_is_read(world):
    script(world, calling_custom(("call_1", "go", TEXT)), said("Done."))
    body = {"input": "Go.", "tools": [GO, WEATHER, NOTE], "store": False}
    first = fold(await stream_of(world, body))
    (call,) = first["output"]
    assert call == {
        "id": call["id"],
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "call_1",
        "name": "go",
        "input": TEXT,
    }
    assert call["id"].startswith("ctc_")
    assert first["tools"][0] == GO
    assert first["tools"][2] == {**NOTE, "description": None, "format": {"type": "text"}}
    names = [tool["function"]["name"] for tool in asked(world)["tools"]]
    assert (names, asked(world)["custom_tools"]["note"]) == (["go", "weather", "note"], None)
    assert asked(world)["custom_tools"]["go"].startswith("root ::= ")
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "You are at home."}
    second = fold(await stream_of(world, {**body, "input": [{"role": "user", "content": "Go."}, call, output]}))
    assert second["output"][0]["content"][0]["text"] == "Done."
    (called,) = messages(world)[-2]["tool_calls"]
    assert (called["type"], called["function"]["name"]) == ("function", "go")
    assert orjson.loads(called["function"]["arguments"]) == {"input": TEXT}
    assert messages(world)[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "You are at home."}


async def test_a_stored_call_is_read_replayed_and_continued(world, responses):
    script(world, calling_custom(("call_1", "go", TEXT), ("call_2", "note", "x")), said("Done."))
    events = await stream_of(world, {"input": "Go.", "tools": [GO, NOTE]})
    first = fold(events)
    assert [item["input"] for item in first["output"]] == [TEXT, "x"]
    async with world.http() as http:
        again = await http.get(f"/v1/responses/{first['id']}?stream=true")
        assert split(again.content) == events
    outputs = [{"type": "custom_tool_call_output", "call_id": f"call_{n}", "output": f"o{n}"} for n in (1, 2)]
    second = await responses.create(model=MODEL, previous_response_id=first["id"], input=outputs, tools=[GO])
    assert [message["content"] for message in messages(world)[-2:]] == ["o1", "o2"]
    listed = [item async for item in responses.input_items.list(second.id)]
    assert {item.type for item in listed} >= {"custom_tool_call_output"}
    assert all(item.id.startswith("ctco_") for item in listed if item.type == "custom_tool_call_output")


async def test_items_of_another_account_stay_unknown(world, responses):
    script(world, calling_custom(("call_1", "go", TEXT)), said("Done."))
    created = await responses.create(model=MODEL, input="Go.", tools=[GO])
    world.principal(OTHER, account="other")
    reference = [{"type": "item_reference", "id": created.output[0].id}]
    with pytest.raises(openai.NotFoundError):
        await world.client(OTHER).responses.create(model=MODEL, input=reference)
    assert (await responses.create(model=MODEL, input=[*reference, output_of("call_1")])).status == "completed"


async def test_a_custom_tool_in_a_namespace_is_called_by_two_names(world):
    script(world, calling_custom(("call_1", "trip__go", TEXT)), said("Done."))
    first = fold(await stream_of(world, {"input": "Go.", "tools": [GROUP]}))
    (call,) = first["output"]
    assert (call["namespace"], call["name"], call["input"]) == ("trip", "go", TEXT)
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a"}]}
    fold(await stream_of(world, {"input": [output], "previous_response_id": first["id"], "tools": [GROUP]}))
    assert messages(world)[-2]["tool_calls"][0]["function"]["name"] == "trip__go"
    assert messages(world)[-1]["content"] == "a"


@pytest.mark.parametrize("name", ["go", "trip__go"])
async def test_a_custom_tool_is_chosen(world, name):
    script(world, said("Done."))
    body = {"input": "Go.", "tools": [NOTE, GROUP]}
    await stream_of(world, {**body, "tool_choice": {"type": "custom", "name": name}})
    assert asked(world)["tool_choice"] == {"type": "function", "function": {"name": "trip__go"}}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": name}]}
    await stream_of(world, {**body, "tool_choice": allowed})
    assert [tool["function"]["name"] for tool in asked(world)["tools"]] == ["trip__go"]
    assert list(asked(world)["custom_tools"]) == ["trip__go"]


async def test_a_custom_tool_may_come_with_the_conversation(world):
    script(world, calling_custom(("call_1", "trip__go", TEXT)))
    brought = {"type": "additional_tools", "role": "developer", "tools": [GROUP]}
    output = fold(await stream_of(world, {"input": [brought, {"role": "user", "content": "Go."}]}))["output"]
    assert (output[0]["type"], output[0]["namespace"], output[0]["name"]) == ("custom_tool_call", "trip", "go")
    assert asked(world)["custom_tools"]["trip__go"].startswith("root ::= ")


async def test_a_custom_tool_may_wait_for_a_search(world):
    script(world, calls(("tool_search", {"query": "go somewhere"})), calling_custom(("call_1", "go", TEXT)))
    tools = [{"type": "tool_search"}, {**GO, "defer_loading": True}]
    output = fold(await stream_of(world, {"input": "Go.", "tools": tools}))["output"]
    assert [item["type"] for item in output] == ["tool_search_call", "tool_search_output", "custom_tool_call"]
    assert "custom_tools" not in asked(world, 0)
    assert list(asked(world)["custom_tools"]) == ["go"]


async def test_an_output_may_show_an_image(world):
    world.chat.card = replace(world.chat.card, has_images=True)
    script(world, said("Done."))
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}, image]}
    call = {"type": "custom_tool_call", "call_id": "c", "name": "look", "input": ""}
    await stream_of(world, {"input": [{"role": "user", "content": "Look."}, call, output]})
    assert [part["type"] for part in messages(world)[-1]["content"]] == ["text", "image_url"]


async def test_a_call_that_was_cut_off_is_left_out_of_the_next_prompt(world):
    script(world, [*calling_custom(("call_1", "go", "go h"))[:-1], *said(reason="length")], said("Done."))
    first = fold(await stream_of(world, {"input": "Go.", "tools": [GO]}))
    assert (first["status"], first["output"][0]["status"]) == ("incomplete", "incomplete")
    fold(await stream_of(world, {"input": "And?", "previous_response_id": first["id"], "tools": [GO]}))
    assert [message["role"] for message in messages(world)] == ["user", "user"]


async def test_faults_are_named_by_their_place(world):
    def held(**fields):
        return [{**GO, "format": {**GRAMMAR, **fields}}]

    faults = [
        ({"tools": held(definition="start: other")}, "tools[0].format.definition"),
        ({"tools": [{**GROUP, "tools": held(definition='start: "a" start')}]}, "tools[0].tools[0].format.definition"),
        ({"tools": held(definition="start: " + "a" * 20_000)}, "tools[0].format.definition"),
        ({"tools": held(syntax="regex", definition=r"\bword")}, "tools[0].format.definition"),
        ({"tools": held(syntax="regex", definition="x" * 1_001)}, "tools[0].format.definition"),
        ({"tools": held(syntax="ebnf")}, "tools[0].format.syntax"),
        ({"tools": [{**GO, "format": {"type": "json"}}]}, "tools[0].format.type"),
        ({"tools": [{**GO, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [GO, {**NOTE, "name": "go"}]}, "tools[1].name"),
        ({"tools": [WEATHER, {**NOTE, "name": "weather"}]}, "tools[1].name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "custom", "name": "weather"}}, "tool_choice.name"),
        ({"tools": [GO], "tool_choice": {"type": "function", "name": "go"}}, "tool_choice.name"),
        ({"input": [{"type": "custom_tool_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "go"}]}, "input[0].input"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "go", "input": "x"}]}, "input"),
    ]
    async with world.http() as http:
        for body, param in faults:
            answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_a_function_call_of_the_same_turn_stays_json(world):
    mixed = [*calling_custom(("call_1", "go", TEXT))[:-1], *calling(("call_2", "weather", '{"city":"x"}'))]
    events = [
        [event._replace(call=1) if hasattr(event, "call") else event for event in piece] if number > 2 else piece
        for number, piece in enumerate(mixed)
    ]
    script(world, events)
    output = fold(await stream_of(world, {"input": "Go.", "tools": [GO, WEATHER]}))["output"]
    assert [item["type"] for item in output] == ["custom_tool_call", "function_call"]
    assert output[1]["arguments"] == '{"city":"x"}'


async def test_lines_of_batches_call_custom_tools(world):
    script(world, calling_custom(("call_1", "go", TEXT)))
    ((status, body),) = await lines_of(world, {"model": MODEL, "input": "Go.", "tools": [GO]})
    assert (status, body["output"][0]["input"]) == (200, TEXT)


def long_grammars(number: int) -> list[dict]:
    """Return custom tools with grammars of nearly half of what one may have."""
    rule = "start: " + '"a" ' * 2_400
    return [{**GO, "name": f"go_{n}", "format": {**GRAMMAR, "definition": rule}} for n in range(number)]


async def test_all_grammars_of_a_request_have_a_bound_together(world):
    async with world.http() as http:
        for tools in ({"tools": long_grammars(5)}, {"tools": [{**GROUP, "tools": long_grammars(5)}]}):
            answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **tools})
            assert answer.status_code == 400
            assert "40,000 characters together" in answer.json()["error"]["message"]
        later = [{"type": "additional_tools", "role": "developer", "tools": [one]} for one in long_grammars(4)]
        body = {"model": MODEL, "input": [{"role": "user", "content": "x"}, *later], "tools": [NOTE]}
        assert (await http.post("/v1/responses", json=body)).status_code == 200
        body["tools"] = [{**GO, "format": {**GRAMMAR, "definition": "start: " + '"a" ' * 1_000}}]
        answer = await http.post("/v1/responses", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "string_above_max_length")


@pytest.mark.parametrize("tools", [[{**GO, "format": {**GRAMMAR, "definition": "start: other"}}], long_grammars(5)])
async def test_grammars_of_a_conversation_are_checked_when_it_goes_on(world, tools):
    async with world.http() as http:
        items = [{"type": "additional_tools", "role": "developer", "tools": [one]} for one in tools]
        created = await http.post("/v1/conversations", json={"items": items})
        if created.status_code == 200:
            body = {"model": MODEL, "input": "x", "conversation": created.json()["id"]}
            created = await http.post("/v1/responses", json=body)
        assert created.status_code == 400, created.text
        assert created.json()["error"]["type"] == "invalid_request_error"
