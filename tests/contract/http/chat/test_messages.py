"""Anthropic's interface: what its clients send and read, as bytes."""

import copy
from dataclasses import replace

import orjson
import pytest

from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.models.contract.events import Finished, ReasoningDelta, TextDelta
from tests.contract.http.answers import MODEL, USAGE, WORDS, pieces, said
from tests.contract.http.response_calls import calling, messages, script
from tests.twins.engine import Script

ASK = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Say hello."}]}
WEATHER = {
    "name": "weather",
    "description": "Tell the weather.",
    "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}},
}


def events_of(content: bytes) -> list[dict]:
    frames = [frame.split(b"\n") for frame in content.decode().encode().split(b"\n\n") if frame]
    for name, data in frames:
        assert name == b"event: " + orjson.loads(data.removeprefix(b"data: "))["type"].encode()
    return [orjson.loads(data.removeprefix(b"data: ")) for _, data in frames]


def fold(events: list[dict]) -> dict:
    """Return the message that a stream's events make, as Anthropic's clients build it."""
    assert [event["type"] for event in events[:1] + events[-2:]] == ["message_start", "message_delta", "message_stop"]
    message = copy.deepcopy(events[0]["message"])
    written = ""
    for event in events[1:-2]:
        assert event["index"] == len(message["content"]) - (event["type"] != "content_block_start")
        if event["type"] == "content_block_start":
            message["content"].append(event["content_block"])
            written = ""
        elif event["type"] == "content_block_stop":
            if message["content"][-1]["type"] == "tool_use":
                message["content"][-1]["input"] = orjson.loads(written or "{}")
        elif event["delta"]["type"] == "input_json_delta":
            written += event["delta"]["partial_json"]
        else:
            kind = event["delta"]["type"].removesuffix("_delta")
            message["content"][-1][kind] += event["delta"][kind]
    return {**message, **events[-2]["delta"], "usage": events[-2]["usage"]}


async def ask(world, path="/v1/messages", **more):
    async with world.http() as http:
        return await http.post(path, params={"beta": "true"}, json={**ASK, **more})


async def both(world, **more) -> dict:
    """Return the message, which is the same streamed and whole."""
    whole = (await ask(world, **more)).json()
    streamed = fold(events_of((await ask(world, stream=True, **more)).content))
    assert {**streamed, "id": ""} == {**whole, "id": ""}
    return whole


async def test_a_message_is_the_same_streamed_and_whole(world):
    told = await both(world)
    assert told["content"] == [{"type": "text", "text": "".join(WORDS)}]
    assert (told["type"], told["role"], told["model"], told["stop_reason"]) == (
        "message",
        "assistant",
        MODEL,
        "end_turn",
    )
    assert told["id"].startswith("msg_")
    assert told["usage"] == {
        "input_tokens": USAGE.prompt_tokens - USAGE.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": USAGE.cached_tokens,
        "output_tokens": USAGE.completion_tokens,
    }
    record = world.log.records[-1]
    assert (record.route, record.stream, record.prompt_tokens) == ("/v1/messages", True, USAGE.prompt_tokens)


async def test_reasoning_and_calls_are_blocks_in_their_order(world):
    script(
        world,
        [
            [ReasoningDelta("reasoning", 0, "Hm")],
            [ReasoningDelta("reasoning", 0, "m.")],
            *calling(("call_1", "weather", '{"city":"Kiel"}'), ("call_2", "weather", ""), words=("Let ", "me see.")),
        ],
    )
    told = await both(world, tools=[WEATHER])
    thought, text, first, second = told["content"]
    assert (thought["thinking"], bool(thought["signature"])) == ("Hmm.", True)
    assert text == {"type": "text", "text": "Let me see."}
    assert first == {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Kiel"}}
    assert second["input"] == {}
    assert told["stop_reason"] == "tool_use"
    hidden = await both(world, tools=[WEATHER], thinking={"type": "adaptive", "display": "omitted"})
    assert hidden["content"][0]["thinking"] == ""
    answered = [
        {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "Rain."}]},
        {"type": "tool_result", "tool_use_id": "call_2", "is_error": True, "content": "No such city."},
        {"type": "text", "text": "And now?"},
    ]
    turns = [*ASK["messages"], {"role": "assistant", "content": told["content"]}, {"role": "user", "content": answered}]
    await ask(world, messages=turns, tools=[WEATHER])
    assert [message["role"] for message in messages(world)] == ["user", "assistant", "tool", "tool", "user"]
    assert (messages(world)[1]["reasoning"], messages(world)[1]["content"]) == ("Hmm.", "Let me see.")
    assert messages(world)[3]["content"] == "The call failed:\nNo such city."


async def test_the_first_request_of_claude_code_is_answered_and_its_prefix_stays_the_same(world):
    def turn(number: int, **more) -> dict:
        return {
            "system": [
                {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number};"},
                {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Be brief."},
            ],
            "max_tokens": 32_000,
            "metadata": {"user_id": "{}"},
            "thinking": {"type": "adaptive", "display": "omitted"},
            "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "tools": [
                {**WEATHER, "eager_input_streaming": True, "cache_control": {"type": "ephemeral"}},
                {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True},
                {
                    "name": "Workflow",
                    "input_schema": {
                        "type": "object",
                        "properties": {"script": {"type": "string", "maxLength": 524_288}},
                    },
                },
            ],
            **more,
        }

    reminder = [{"type": "text", "text": "It is noon.", "cache_control": {"type": "ephemeral"}}]
    first = await ask(world, **turn(1, messages=[*ASK["messages"], {"role": "system", "content": reminder}]))
    assert first.status_code == 200, first.text
    asked = orjson.loads(world.chat.requests[-1].body)
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["weather", "Workflow"]
    assert asked["max_completion_tokens"] == world.chat.card.max_model_len
    later = [
        *ASK["messages"],
        {"role": "system", "content": "It is noon."},
        {"role": "assistant", "content": first.json()["content"]},
        {"role": "user", "content": "Go on."},
    ]
    await ask(world, **turn(2, messages=later))
    before, after = messages(world, -2), messages(world)
    assert after[: len(before)] == before
    assert before[0] == {"role": "system", "content": "You are an agent.\nBe brief."}
    assert before[2] == {"role": "system", "content": "It is noon."}


async def test_a_tool_that_is_deferred_is_seen_once_a_search_has_found_it(world):
    tools = [WEATHER, {**WEATHER, "name": "x" * 100, "defer_loading": True}]
    found = [{"type": "tool_reference", "tool_name": "x" * 100}]
    turns = [
        *ASK["messages"],
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": found}]},
    ]
    await ask(world, tools=tools, messages=turns)
    short = orjson.loads(world.chat.requests[-1].body)["tools"][1]["function"]["name"]
    script(world, calling(("call_1", short, "{}")))
    told = await both(world, tools=tools, messages=turns)
    assert len(short) == 64
    assert told["content"][0]["name"] == "x" * 100


async def test_a_tool_comes_and_goes_in_the_middle_of_a_conversation(world):
    def change(kind):
        text = {"type": "text", "text": "Mind it."}
        named = {"type": kind, "tool": {"type": "tool_reference", "name": "search"}, "cache_control": None}
        return {"role": "system", "content": [named, text]}

    def offered():
        return [tool["function"]["name"] for tool in orjson.loads(world.chat.requests[-1].body)["tools"]]

    tools = [WEATHER, {**WEATHER, "name": "search", "defer_loading": True}]
    turns = [*ASK["messages"], change("tool_addition")]
    assert (await ask(world, messages=turns, tools=tools)).status_code == 200
    assert offered() == ["weather", "search"]
    assert messages(world)[-1] == {"role": "system", "content": "The tool 'search' can be used now.\nMind it."}
    assert (await ask(world, messages=[*turns, change("tool_removal")], tools=tools)).status_code == 200
    assert offered() == ["weather"]
    assert messages(world)[-1]["content"] == "The tool 'search' cannot be used now.\nMind it."


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ],
)
async def test_choices_among_tools(world, choice, wanted):
    await ask(world, tools=[WEATHER], tool_choice={**choice, "disable_parallel_tool_use": True})
    asked = orjson.loads(world.chat.requests[-1].body)
    assert (asked["tool_choice"], asked["parallel_tool_calls"]) == (wanted, False)


async def test_images_are_shown_to_a_model_that_sees(world):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    turns = [{"role": "user", "content": [{"type": "text", "text": "Look."}, image]}]
    refused = await ask(world, messages=turns)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    world.chat.card = replace(world.chat.card, has_images=True)
    assert (await ask(world, messages=turns)).status_code == 200
    assert messages(world)[0]["content"][1]["image_url"]["url"] == "data:image/png;base64,AAAA"


@pytest.mark.parametrize("sees", [True, False])
async def test_the_model_reads_that_a_call_with_an_image_failed(world, sees):
    world.chat.card = replace(world.chat.card, has_images=sees)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "shot", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image], "is_error": True}
    turns = [*ASK["messages"], {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    assert (await ask(world, messages=turns)).status_code == 200
    content = messages(world)[-1]["content"]
    if sees:
        assert content[0] == {"type": "text", "text": "The call failed:"}
        assert content[1]["image_url"]["url"] == "data:image/png;base64,AAAA"
    else:
        assert content == "The call failed:\n[An image, which this model cannot see.]"


async def test_calls_that_another_service_carried_out_are_history_that_the_model_reads(world):
    call = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "kites"}}
    found = [{"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "x" * 2000}]
    cited = {"type": "text", "text": "Found.", "citations": [{"type": "web_search_result_location", "url": "u"}]}
    own = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    content = [
        {"type": "thinking", "thinking": "Search.", "signature": "of another service"},
        call,
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": found, "caller": {"type": "direct"}},
        own,
        {"type": "mcp_tool_use", "id": "mcp_1", "name": "echo", "server_name": "s", "input": {}},
        cited,
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}
    turns = [*ASK["messages"], {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    assert (await ask(world, messages=turns, tools=[WEATHER])).status_code == 200
    _, first, searched, second, echoed, last, rain = messages(world)
    assert (first["reasoning"], first["content"], len(first["tool_calls"])) == ("Search.", None, 1)
    assert first["tool_calls"][0]["function"] == {"name": "web_search", "arguments": '{"query":"kites"}'}
    assert (searched["role"], searched["tool_call_id"]) == ("tool", "srv_1")
    assert orjson.loads(searched["content"]) == [{**found[0], "encrypted_content": "[data]"}]
    assert second["tool_calls"][0]["function"]["name"] == "echo"
    assert echoed["content"] == "[The call has no output.]"
    assert (last["content"], last["tool_calls"][0]["id"]) == ("Found.", "toolu_1")
    assert (rain["tool_call_id"], rain["content"]) == ("toolu_1", "Rain.")
    whole = [{"role": "assistant", "content": content[:3]}, {"role": "user", "content": "And?"}]
    assert (await ask(world, messages=[*ASK["messages"], *whole])).status_code == 200
    assert [one["role"] for one in messages(world)] == ["user", "assistant", "tool", "user"]


async def test_what_the_client_has_found_is_text_for_the_model(world):
    part = {"type": "text", "text": "They fly.", "cache_control": {"type": "ephemeral"}}
    found = {"type": "search_result", "source": "https://a.example", "title": "Kites", "content": [part]}
    asked = [{**found, "citations": {"enabled": True}}, {"type": "text", "text": "Do they?"}]
    assert (await ask(world, messages=[{"role": "user", "content": asked}])).status_code == 200
    assert messages(world)[-1]["content"] == "Kites\nhttps://a.example\nThey fly.\nDo they?"


async def test_tokens_are_counted_by_the_tokenizer_alone_and_without_the_minute(world):
    world.principal(requests_per_minute=1)
    body = {name: value for name, value in ASK.items() if name != "max_tokens"}
    async with world.http() as http:
        answers = [
            await http.post("/v1/messages/count_tokens", json={**body, "system": "Be brief.", "tools": [WEATHER]})
            for _ in range(24)
        ]
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json() == {"input_tokens": answers[0].json()["input_tokens"]}
    assert {request.operation for request in world.chat.requests} == {"tokenize"}
    assert [message["role"] for message in messages(world)] == ["system", "user"]


FAULTS = [
    ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
    ({"tempratur": 1}, 400, "invalid_request_error", "tempratur"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 400, "invalid_request_error", "'video'"),
    ({"model": "demo/none"}, 404, "not_found_error", "demo/none"),
    ({"tools": [{**WEATHER, "input_schema": {"type": "string"}}]}, 400, "invalid_request_error", "input_schema"),
    ({"tool_choice": {"type": "tool", "name": "x"}, "tools": [WEATHER]}, 400, "invalid_request_error", "tool_choice"),
    ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error", "there is no tool to call"),
    (
        {"tool_choice": {"type": "any"}, "tools": [{**WEATHER, "defer_loading": True}]},
        400,
        "invalid_request_error",
        "there is no tool to call",
    ),
    (
        {"tools": [WEATHER, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]},
        400,
        "invalid_request_error",
        "'tools[1].type' does not support 'web_search_20250305'",
    ),
    (
        {"messages": [ASK["messages"][0], {"role": "system", "content": [{"type": "video"}]}]},
        400,
        "invalid_request_error",
        "messages[1].content[0].type: Invalid value: 'video'.",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "y"}]}]},
        400,
        "invalid_request_error",
        "tool",
    ),
]


@pytest.mark.parametrize(("more", "status", "kind", "named"), FAULTS)
async def test_refusals_have_anthropics_shape(world, more, status, kind, named):
    answer = await ask(world, **more)
    told = answer.json()
    assert (answer.status_code, told["type"], told["error"]["type"]) == (status, "error", kind)
    assert named in told["error"]["message"]
    assert told["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]


async def test_keys_and_limits_hold_and_failures_have_anthropics_shape(world):
    async with world.http() as http:
        del http.headers["authorization"]
        told = (await http.post("/v1/messages", json=ASK)).json()
        assert told["error"]["type"] == "authentication_error"
        assert (await http.get("/v1/messages")).json()["type"] == "error"
    world.principal(operations=frozenset({"embeddings"}))
    assert (await ask(world)).json()["error"]["type"] == "permission_error"
    world.principal(tokens_per_minute=10)
    limited = await ask(world)
    assert (limited.status_code, limited.json()["error"]["type"]) == (429, "rate_limit_error")
    world.principal()
    world.chat.script = lambda request: Script([Overloaded("full", 1.0)])
    busy = await ask(world)
    assert (busy.status_code, busy.json()["error"]["type"]) == (503, "overloaded_error")
    world.chat.script = lambda request: Script([*pieces(request, said("one"))[:1], EngineDied("gone")])
    broken = events_of((await ask(world, stream=True)).content)
    assert [event["type"] for event in broken][-1] == "error"
    assert broken[-1]["error"]["type"] in ("api_error", "overloaded_error")


async def test_the_stop_sequence_that_ended_a_message_is_told(world):
    script(world, [[TextDelta("text", 0, "One")], [Finished("finished", 0, "stop", "END")]])
    told = await both(world, stop_sequences=["END"])
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "END")
    script(world, said("One"))
    told = await both(world, stop_sequences=["END"])
    assert (told["stop_reason"], told["stop_sequence"]) == ("end_turn", None)


async def test_what_the_service_ignores_is_dropped_from_messages_too(world):
    assert (await ask(world, client_metadata={"a": "b"})).status_code == 200
    counted = {"model": MODEL, "messages": ASK["messages"], "client_metadata": {"a": "b"}}
    async with world.http() as http:
        assert (await http.post("/v1/messages/count_tokens", json=counted)).status_code == 200
    assert (await ask(world, unknown={"a": "b"})).status_code == 400


async def test_a_client_is_told_that_conversations_are_not_kept(world):
    """Its loop over tools then sends the whole conversation each time."""
    refused = await ask(world, thread={"type": "create"})
    assert refused.status_code == 400
    assert refused.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}
    assert "thread" in refused.json()["error"]["message"]
    assert (await ask(world, thread=None)).status_code == 200
    assert "details" not in (await ask(world, tempratur=1)).json()["error"]


@pytest.mark.parametrize(
    ("asked", "effort", "budget"),
    [
        ({}, None, None),
        ({"output_config": {"effort": "max"}}, "max", None),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low", None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "high", 2048),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, "none", None),
    ],
)
async def test_how_much_the_model_reasons_is_an_effort_or_a_budget(world, asked, effort, budget):
    world.chat.card = replace(world.chat.card, has_reasoning=True)
    assert (await ask(world, **asked)).status_code == 200
    sent = orjson.loads(world.chat.requests[-1].body)
    assert (sent.get("reasoning_effort"), sent.get("thinking_token_budget")) == (effort, budget)
