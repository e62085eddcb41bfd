"""What coding agents send over the responses interface: fields of their own, namespaces, calls of their own tools."""

import copy
from dataclasses import replace

import orjson
import pytest

from tests.contract.http.answers import MODEL, USAGE, said
from tests.contract.http.response_calls import WEATHER, calling, lines_of, messages, script, stream_of
from tests.twins.legal import fold

ECHO = {
    "type": "function",
    "name": "echo",
    "description": "Repeat a text.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"text": {"type": "string", "maxLength": 524_288}}},
}
NAMESPACE = {"type": "namespace", "name": "mcp__echo", "description": "Tools of an echo server.", "tools": [ECHO]}
OFF = {"type": "web_search", "external_web_access": True, "search_content_types": ["text", "image"]}
METADATA = {"turn_id": "turn_1", "content_item_kinds": ["text"]}
FIRST = {
    "instructions": "You are a coding agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be careful."}]},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Say it."}],
            "internal_chat_message_metadata_passthrough": METADATA,
        },
    ],
    "tools": [{**WEATHER, "strict": False}, OFF, NAMESPACE],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "session",
    "client_metadata": {"session_id": "session", "turn_id": "turn_1"},
}
"""The first request of Codex, shortened."""


async def test_the_first_request_of_a_coding_agent_is_answered(world):
    script(world, calling(("call_1", "mcp__echo__echo", '{"text":"a"}')), said("Done."))
    first = fold(await stream_of(world, FIRST))
    (call,) = first["output"]
    assert (call["type"], call["namespace"], call["name"], call["arguments"]) == (
        "function_call",
        "mcp__echo",
        "echo",
        '{"text":"a"}',
    )
    asked = orjson.loads(world.chat.requests[0].body)
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["weather", "mcp__echo__echo"]
    assert asked["tools"][1]["function"]["description"] == "Tools of an echo server.\n\nRepeat a text."
    assert "client_metadata" not in asked
    output = {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a"}]}
    second = fold(await stream_of(world, {**FIRST, "input": [*FIRST["input"], call, output]}))
    assert second["output"][0]["content"][0]["text"] == "Done."
    assert messages(world)[-2]["tool_calls"][0]["function"]["name"] == "mcp__echo__echo"
    assert messages(world)[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "a"}


async def test_a_stored_call_in_a_namespace_is_read_and_streamed_again(world, responses):
    script(world, calling(("call_1", "mcp__echo__echo", "{}")), said("Done."))
    first = await responses.create(model=MODEL, input="Say it.", tools=[NAMESPACE])
    assert (first.output[0].namespace, first.output[0].name) == ("mcp__echo", "echo")
    events = [event async for event in await responses.retrieve(first.id, stream=True)]
    assert (events[-1].response.output[0].namespace, events[-1].response.output[0].name) == ("mcp__echo", "echo")
    output = {"type": "function_call_output", "call_id": "call_1", "output": "a"}
    await responses.create(model=MODEL, previous_response_id=first.id, input=[output], tools=[NAMESPACE])
    assert messages(world)[1]["tool_calls"][0]["function"]["name"] == "mcp__echo__echo"


@pytest.mark.parametrize("name", ["echo", "mcp__echo__echo"])
async def test_a_function_in_a_namespace_can_be_chosen(world, name):
    script(world, said("Done."))
    tools = [WEATHER, {**NAMESPACE, "tools": [{**ECHO, "parameters": None}]}]
    await stream_of(world, {"input": "x", "tools": tools, "tool_choice": {"type": "function", "name": name}})
    chosen = orjson.loads(world.chat.requests[-1].body)["tool_choice"]
    assert chosen == {"type": "function", "function": {"name": "mcp__echo__echo"}}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name}]}
    await stream_of(world, {"input": "x", "tools": tools, "tool_choice": allowed})
    (offered,) = orjson.loads(world.chat.requests[-1].body)["tools"]
    assert offered["function"]["name"] == "mcp__echo__echo"


async def test_names_that_are_too_long_together_stay_apart(world):
    long = [{**ECHO, "name": "x" * 60 + end} for end in "ab"]
    body = {"input": "x", "tools": [{"type": "namespace", "name": "mcp__server", "tools": long}]}
    script(world, said("Done."))
    await stream_of(world, body)
    names = [tool["function"]["name"] for tool in orjson.loads(world.chat.requests[0].body)["tools"]]
    script(world, calling(("call_1", names[1], "{}")))
    (call,) = fold(await stream_of(world, body))["output"]
    assert (call["namespace"], call["name"]) == ("mcp__server", "x" * 60 + "b")
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 64


async def test_faults_in_a_namespace_are_named_by_their_place(world):
    twice = {**ECHO, "name": "mcp__echo__echo"}
    broken = copy.deepcopy(NAMESPACE)
    broken["tools"][0]["parameters"] = {"type": "string"}
    faults = [
        ({"tools": [twice, NAMESPACE]}, "tools[1].tools[0].name"),
        ({"tools": [WEATHER, broken]}, "tools[1].tools[0].parameters"),
        ({"tools": [{**NAMESPACE, "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
        ({"tools": [NAMESPACE], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice.name"),
        ({"tools": [{**NAMESPACE, "tools": [{**ECHO, "strict": True}]}]}, "tools[0].tools[0].parameters"),
    ]
    async with world.http() as http:
        for body, param in faults:
            answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_unknown_fields_beyond_those_of_agents_are_refused(world):
    async with world.http() as http:
        for body, param in (
            ({"client_metadata_": {}}, "client_metadata_"),
            ({"tools": [{**WEATHER, "search_content_type": []}]}, "tools[0].search_content_type"),
            ({"metadata": {"client_metadata": {}}}, "metadata"),
        ):
            answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "client_metadata": {"a": "b"}}
        assert (await http.post("/v1/chat/completions", json=chat)).status_code == 200
    assert b"client_metadata" not in world.chat.requests[-1].body


async def test_batches_take_what_agents_send(world):
    script(world, said("Done."))
    ((status, body),) = await lines_of(world, {"model": MODEL, **FIRST, "reasoning": None})
    assert (status, body["status"]) == (200, "completed")


async def test_a_schema_is_held_to_the_compilers_bounds_only_where_it_is_compiled(world):
    script(world, said("Done."))
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
    function = {name: ECHO[name] for name in ("name", "parameters")}
    async with world.http() as http:
        for tool, choice, status in (
            (function, "auto", 200),
            ({**function, "strict": False}, "auto", 200),
            (function, "required", 400),
            (function, {"type": "function", "function": {"name": "echo"}}, 400),
            (function, "none", 200),
            (function, {"type": "function", "function": {"name": "other"}}, 200),
        ):
            tools = [{"type": "function", "function": tool}, {"type": "function", "function": {"name": "other"}}]
            body = {**chat, "tools": tools, "tool_choice": choice}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == status, (tool, choice, answer.text)
        large = {**function, "parameters": {"type": "object", "description": "x" * 300_000}}
        body = {**chat, "tools": [{"type": "function", "function": large}]}
        assert "200000 bytes" in (await http.post("/v1/chat/completions", json=body)).text


EXTERNAL = [
    {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin Patch\n*** End Patch"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done!"},
    {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}, "environment": None, "status": "completed"},
    {
        "type": "shell_call_output",
        "call_id": "c2",
        "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        "max_output_length": None,
    },
    {"type": "local_shell_call", "id": "lsh_1", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "c3", "output": "b.py"},
    {"type": "tool_search_call", "call_id": "c4", "execution": "client", "arguments": {"query": "echo"}},
    {"type": "tool_search_output", "call_id": "c4", "execution": "client", "tools": [NAMESPACE]},
    {"type": "apply_patch_call", "call_id": "c5", "operation": {"type": "delete_file", "path": "a.py"}},
    {"type": "apply_patch_call_output", "call_id": "c5", "status": "completed", "output": "Deleted."},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBOR" * 1_000},
    {"type": "computer_call", "call_id": "c6", "action": {"type": "screenshot"}},
    {
        "type": "computer_call_output",
        "call_id": "c6",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64," + "AAAA" * 1_000},
    },
    {"type": "program", "id": "prog_1", "call_id": "c7", "code": "1 + 1"},
    {"type": "program_output", "call_id": "c7", "result": "2"},
]


async def test_calls_of_tools_that_do_not_run_here_are_history_that_the_model_reads(world, responses):
    script(world, said("Done."))
    first = await responses.create(model=MODEL, input=[{"role": "user", "content": "Go."}, *EXTERNAL])
    calls = [call["function"] for message in messages(world) for call in message.get("tool_calls") or ()]
    outputs = [message["content"] for message in messages(world) if message["role"] == "tool"]
    assert len(calls) == len(outputs) == 8
    assert calls[0]["name"] == "apply_patch"
    assert orjson.loads(calls[0]["arguments"]) == {"input": "*** Begin Patch\n*** End Patch"}
    assert [call["name"] for call in calls[1:4]] == ["shell", "local_shell", "tool_search"]
    assert (outputs[0], outputs[2], outputs[-1]) == ("Done!", "b.py", "2")
    assert "a.py" in outputs[1]
    assert "mcp__echo" in outputs[3]
    assert max(map(len, [*outputs, *(call["arguments"] for call in calls)])) < 1_000
    kept = [item async for item in responses.input_items.list(first.id, order="asc", limit=100)]
    assert [item.type for item in kept[1:]] == [item["type"] for item in EXTERNAL]
    assert kept[1].input == EXTERNAL[0]["input"]
    await responses.create(model=MODEL, previous_response_id=first.id, input="And?")
    assert len([message for message in messages(world) if message["role"] == "tool"]) == 8


async def test_an_output_of_another_tool_without_its_call_is_refused(world):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": EXTERNAL[1:2]})
        nameless = await http.post("/v1/responses", json={"model": MODEL, "input": [{"type": "shell_call"}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0].call_id")
    assert (nameless.status_code, nameless.json()["error"]["param"]) == (400, "input[0].call_id")


@pytest.mark.parametrize("sees", [True, False])
async def test_an_image_in_the_output_of_a_call_is_shown_to_a_model_that_sees(world, sees):
    script(world, said("Done."))
    world.chat.card = replace(world.chat.card, has_images=sees)
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "original"}
    call = {"type": "function_call", "call_id": "c1", "name": "view_image", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "It:"}, image]}
    await stream_of(world, {"input": [{"role": "user", "content": "Look."}, call, output]})
    content = messages(world)[-1]["content"]
    if sees:
        assert content[1] == {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"},
        }
    else:
        assert content == "It:\n[An image, which this model cannot see.]"


async def test_a_conversation_of_another_service_goes_on_without_what_it_sealed(world):
    script(world, said("Done."))
    summary = [{"type": "summary_text", "text": "The user greets."}]
    await stream_of(
        world,
        {
            "input": [
                {"type": "compaction", "encrypted_content": "gAAAA-of-another-service"},
                {"role": "user", "content": "Hello."},
                {"type": "reasoning", "summary": summary, "content": None, "encrypted_content": "gAAAA-sealed"},
                {"role": "assistant", "content": "Hi."},
                {"role": "user", "content": "And?"},
            ]
        },
    )
    told = messages(world)
    assert told[0]["role"] == "system"
    assert "compacted by another service" in told[0]["content"]
    assert (told[2]["reasoning"], told[2]["content"]) == ("The user greets.", "Hi.")


async def test_a_trigger_compacts_the_conversation_into_exactly_one_item(world):
    script(world, said("The user greeted."), said("Done."))
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}, call]
    body = {**FIRST, "input": [*history, {"type": "compaction_trigger"}]}
    events = await stream_of(world, body)
    final = fold(events)
    (item,) = final["output"]
    assert [event["type"] for event in events if "output_item" in event["type"]] == [
        "response.output_item.added",
        "response.output_item.done",
    ]
    assert (item["type"], final["status"], final["usage"]["total_tokens"]) == (
        "compaction",
        "completed",
        USAGE.total_tokens,
    )
    assert "greeted" not in item["encrypted_content"]
    asked = orjson.loads(world.chat.requests[0].body)
    assert ("tools" in asked, asked["messages"][-1]["role"]) == (False, "user")
    assert "Summarize" in asked["messages"][-1]["content"]
    await stream_of(
        world, {"input": [{"role": "user", "content": "Hello."}, item, {"role": "user", "content": "And?"}]}
    )
    assert [message["content"] for message in messages(world)] == [
        "Hello.",
        "What was said before, in short:\nThe user greeted.",
        "And?",
    ]


async def test_a_trigger_must_be_last(world):
    async with world.http() as http:
        body = {"model": MODEL, "input": [{"type": "compaction_trigger"}, {"role": "user", "content": "x"}]}
        answer = await http.post("/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0]")


async def test_a_conversation_beyond_the_threshold_is_compacted_before_the_model_continues_it(world, responses):
    long = "The house is red. " * 60
    script(world, said(long), said("Red."), said("A red house."), said("Yes."), said("So it is."))
    manage = {"context_management": [{"type": "compaction", "compact_threshold": 200}]}
    first = await responses.create(model=MODEL, input="Tell me.", instructions="Be brief.", extra_body=manage)
    assert [item.type for item in first.output] == ["message"]
    more = {"instructions": "Be brief.", "previous_response_id": first.id, "extra_body": manage}
    second = await responses.create(model=MODEL, input="Which colour?", **more)
    assert [item.type for item in second.output] == ["compaction", "message"]
    assert second.usage.total_tokens == 2 * USAGE.total_tokens
    assert long not in str(messages(world))
    assert [message["role"] for message in messages(world)] == ["system", "user", "system", "user"]
    assert messages(world)[2]["content"].endswith("\nRed.")
    events = [event async for event in await responses.retrieve(second.id, stream=True)]
    assert events[-1].response.output == second.output
    await responses.create(model=MODEL, input="Sure?", **{**more, "previous_response_id": second.id})
    assert long not in str(messages(world))
    assert messages(world)[-1]["content"] == "Sure?"
    assert messages(world)[0] == {"role": "system", "content": "Be brief."}


async def test_a_compaction_holds_the_tokens_of_its_summary_and_those_of_the_answer(world):
    world.principal(tokens_per_minute=1_500)
    manage = {"context_management": [{"type": "compaction", "compact_threshold": 1}], "max_output_tokens": 600}
    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    body = {"model": MODEL, "input": [*history, {"role": "user", "content": "And?"}], **manage}
    async with world.http() as http:
        refused = await http.post("/v1/responses", json=body)
        script(world, said("Short."), said("Hi."))
        taken = await http.post("/v1/responses", json={**body, "max_output_tokens": 200})
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "tokens")
    assert [item["type"] for item in taken.json()["output"]] == ["compaction", "message"]


@pytest.mark.parametrize("value", [5, {"a": 1}, "gAAAA"])
async def test_a_field_of_another_tool_may_be_called_like_one_of_the_service(world, value):
    call = {"type": "shell_call", "call_id": "c", "encrypted_content": value}
    async with world.http() as http:
        answer = await http.post(
            "/v1/responses", json={"model": MODEL, "input": [call, {"role": "user", "content": "Go."}]}
        )
    assert answer.status_code == 200
    (asked,) = messages(world)[0]["tool_calls"]
    assert orjson.loads(asked["function"]["arguments"]) == {"encrypted_content": value}
