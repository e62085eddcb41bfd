"""Public reports about messages that clients send back: what broke other services is read here, or refused by name."""

import orjson
import pytest

from tests.contract.http.answers import MODEL

HI = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def call(arguments: object = "{}", call_id: str = "call_1") -> dict:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


async def ask(world, *messages, **more):
    async with world.http() as http:
        return await http.post("/v1/chat/completions", json={"model": MODEL, "messages": [*messages], **more})


@pytest.mark.parametrize(
    "arguments",
    ['{"a": 1', "", "[1, 2]", '{"a": NaN}', '{"a":' * 90 + "1" + "}" * 90, '"text"', "null", "not JSON at all"],
    ids=["cut", "empty", "list", "NaN", "deep", "text", "null", "no JSON"],
)
async def test_broken_arguments_of_an_earlier_call_do_not_block_a_conversation(world, arguments):
    """vllm-project/vllm#48922, #55495: the model once wrote them, so they are in the history for good."""
    history = [
        HI,
        {"role": "assistant", "tool_calls": [call(arguments)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
    ]
    assert (await ask(world, *history)).status_code == 200
    items = [
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": arguments},
        {"type": "function_call_output", "call_id": "call_1", "output": "x"},
    ]
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": [HI, *items]})
    assert answer.status_code == 200
    sent = orjson.loads(world.chat.requests[-1].body)["messages"]
    assert isinstance(orjson.loads(sent[1]["tool_calls"][0]["function"]["arguments"]), dict)


@pytest.mark.parametrize("arguments", [{"a": 1}, None], ids=["object", "null"])
async def test_arguments_that_are_no_text_are_refused_by_name(world, arguments):
    """bytedance/deer-flow#4445."""
    answer = await ask(world, HI, {"role": "assistant", "tool_calls": [call(arguments)]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}], ids=["null", "empty", "missing"])
async def test_an_assistant_may_have_calls_and_no_content(world, content):
    """mistralai/mistral-common#324, abetlen/llama-cpp-python#1805."""
    result = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
    assert (await ask(world, HI, {"role": "assistant", "tool_calls": [call()], **content}, result)).status_code == 200


async def test_an_assistant_without_content_and_calls_is_refused_and_an_empty_one_is_not(world):
    """tashfeenahmed/freellmapi#165."""
    assert (await ask(world, HI, {"role": "assistant", "content": None}, HI)).status_code == 400
    assert (await ask(world, HI, {"role": "assistant", "content": ""}, HI)).status_code == 200


@pytest.mark.parametrize("parts", [["one"], ["one", "two"]])
async def test_the_result_of_a_call_may_be_parts(world, parts):
    """Neroued/ninfer#56, strands-agents/harness-sdk#1833."""
    content = [{"type": "text", "text": text} for text in parts]
    history = [
        HI,
        {"role": "assistant", "tool_calls": [call()]},
        {"role": "tool", "tool_call_id": "call_1", "content": content},
    ]
    assert (await ask(world, *history)).status_code == 200
    sent = orjson.dumps(orjson.loads(world.chat.requests[-1].body)["messages"][2]["content"]).decode()
    assert all(text in sent for text in parts)


async def test_a_user_may_send_parts_beside_tools(world):
    """penta2himajin/qwisp#83, openclaw/openclaw#64543."""
    content = [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]
    assert (await ask(world, {"role": "user", "content": content}, tools=[TOOL])).status_code == 200


@pytest.mark.parametrize(("tools", "status"), [([], 400), (None, 200), ([TOOL], 200)])
async def test_empty_tools_are_refused_as_openai_does(world, tools, status):
    """vllm-project/vllm#39741, open-webui/open-webui#26655."""
    answer = await ask(world, HI, tools=tools, tool_choice="auto" if tools is not None else None)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"]["code"] == "empty_array"


async def test_a_response_with_empty_tools_is_a_message(world):
    """vllm-project/vllm#40314."""
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "Hi", "tools": []})
    assert [item["type"] for item in answer.json()["output"]] == ["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "\ud83d"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a\udc00"}]}]},
        {"messages": [HI], "stop": "\ud83d"},
        {"messages": [HI], "user": "\ud83d"},
        {"messages": [HI], "tools": [{"type": "function", "function": {"name": "f", "description": "\ud83d"}}]},
    ],
)
async def test_half_an_emoji_is_refused(world, body):
    """JustVugg/colibri#1589, anomalyco/opencode#14630."""
    import json

    content = json.dumps({"model": MODEL, **body}).encode()
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert not world.chat.requests


async def test_outputs_of_an_earlier_response_come_back_with_and_without_ids_and_with_nulls(world):
    """vllm-project/vllm#33089, #45273: the second turn of Codex."""
    async with world.http() as http:
        first = (await http.post("/v1/responses", json={"model": MODEL, "input": "Hi", "store": False})).json()
        (item,) = first["output"]
        bare = {name: value for name, value in item.items() if name != "id"}
        for back in (item, bare, {**item, "status": None}, {**bare, "status": None}):
            body = {"model": MODEL, "input": [HI, back, HI], "store": False}
            answer = await http.post("/v1/responses", json=body)
            assert answer.status_code == 200, answer.text
