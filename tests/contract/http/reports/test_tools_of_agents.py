"""Public reports about the tools that coding agents send, and how calls of them find their way back."""

import orjson
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import calling, messages, script, stream_of
from tests.twins.legal import fold

READ = {
    "type": "function",
    "name": "read_file",
    "strict": False,
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
ECHO = {**READ, "name": "echo", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}
MCP = {"type": "namespace", "name": "mcp__echo", "description": "An MCP server.", "tools": [ECHO]}
CHAT_READ = {"type": "function", "function": {"name": "read_file", "parameters": READ["parameters"]}}
MESSAGES_READ = {"name": "read_file", "input_schema": READ["parameters"]}
HI = [{"role": "user", "content": "Hi"}]
ROUTES = [
    ("/v1/chat/completions", {"messages": HI, "tools": [CHAT_READ], "parallel_tool_calls": False}),
    ("/v1/responses", {"input": HI, "tools": [READ], "parallel_tool_calls": False}),
    (
        "/v1/messages",
        {
            "messages": HI,
            "max_tokens": 9,
            "tools": [MESSAGES_READ],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        },
    ),
]


async def post(world, path="/v1/responses", **body):
    async with world.http() as http:
        return await http.post(path, json={"model": MODEL, **body})


def offered(world) -> list[str]:
    """Return the names of the tools that the model saw last."""
    return [tool["function"]["name"] for tool in orjson.loads(world.chat.requests[-1].body)["tools"]]


async def test_tools_in_a_namespace_are_taken_beside_functions(world):
    """coder/coder#28656, ollama/ollama#17618, BerriAI/litellm#36182."""
    answer = await post(world, input="Hi", tools=[READ, MCP])
    assert answer.status_code == 200, answer.text
    assert answer.json()["tools"][1]["type"] == "namespace"
    assert offered(world) == ["read_file", "mcp__echo__echo"]


async def test_a_call_in_a_namespace_comes_out_in_two_fields_and_is_read_again(world):
    """ollama/ollama#18284, openai/codex#32318: folded into one name, the client cannot route it."""
    script(world, calling(("call_1", "mcp__echo__echo", '{"text":"a"}')), said("Done."))
    (call,) = fold(await stream_of(world, {"input": HI, "tools": [MCP]}))["output"]
    assert (call["namespace"], call["name"]) == ("mcp__echo", "echo")
    output = {"type": "function_call_output", "call_id": "call_1", "output": "a"}
    assert (await post(world, input=[*HI, call, output], tools=[MCP])).status_code == 200
    assert messages(world)[1]["tool_calls"][0]["function"]["name"] == "mcp__echo__echo"


@pytest.mark.parametrize("kind", ["web_search", "image_generation"])
async def test_a_tool_that_every_agent_names_is_dropped_where_the_service_lacks_it(world, kind):
    """ggml-org/llama.cpp#20156, #22389, openai/codex#10635: "type of tool must be function"."""
    answer = await post(world, input="Hi", tools=[{"type": kind}, READ])
    assert answer.status_code == 200, answer.text
    assert offered(world) == ["read_file"]


async def test_a_tool_that_nobody_knows_is_refused_by_its_place(world):
    """ggml-org/llama.cpp#20156."""
    error = (await post(world, input="Hi", tools=[READ, {"type": "time_machine"}])).json()["error"]
    assert error["param"] == "tools[1].type"
    assert "'time_machine'" in error["message"]
    assert not world.chat.requests


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_the_engine_is_told_of_a_wish_for_one_call_at_a_time(world, path, body):
    """JackChen-me/open-multi-agent#173; tests/contract/engine/test_calls.py shows that it keeps to it."""
    assert (await post(world, path, **body)).status_code == 200
    assert orjson.loads(world.chat.requests[-1].body)["parallel_tool_calls"] is False
