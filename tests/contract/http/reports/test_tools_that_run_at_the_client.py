"""Public reports about the tools of coding agents that are no functions: free text, patches, tools that come later."""

import orjson
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import calling, calling_custom, messages, script, stream_of
from tests.twins.legal import fold

HI = [{"role": "user", "content": "Hi"}]
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-1\n+2\n*** End Patch"
READ = {"type": "function", "name": "read_file", "parameters": {"type": "object", "properties": {}}}
CUSTOM = {"type": "custom", "name": "apply_patch", "description": "Change files."}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def offered(world) -> dict[str, dict]:
    """Return the tools that the model saw last, by name."""
    tools = orjson.loads(world.chat.requests[-1].body).get("tools", ())
    return {tool["function"]["name"]: tool["function"] for tool in tools}


async def only_item(world, **body) -> dict:
    (item,) = fold(await stream_of(world, {"input": HI, **body}))["output"]
    return item


async def test_a_custom_tool_is_offered_and_its_call_is_free_text(world):
    """Wei-Shaw/workbuddy2api#12, vllm-project/vllm#56285: dropped without a word, and the agent cannot edit."""
    script(world, calling_custom(("call_1", "apply_patch", PATCH)), said("Done."))
    call = await only_item(world, tools=[READ, CUSTOM])
    assert list(offered(world)) == ["read_file", "apply_patch"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Done!"}
    await stream_of(world, {"input": [*HI, call, output], "tools": [CUSTOM]})
    assert messages(world)[-1]["content"] == "Done!"


async def test_a_patch_is_a_call_of_its_own_kind(world):
    """BerriAI/litellm#20905, #31571."""
    operation = {"type": "update_file", "path": "a.py", "diff": "@@\n-1\n+2"}

    def play(request):
        schema = orjson.loads(request.body)["tools"][0]["function"]["parameters"]
        arguments = {"operation": operation} if "operation" in schema["properties"] else operation
        script(world, calling(("call_1", "apply_patch", orjson.dumps(arguments).decode())))
        return world.chat.script(request)

    world.chat.script = play
    call = await only_item(world, tools=[{"type": "apply_patch"}])
    assert call["type"] == "apply_patch_call"
    assert {name: call["operation"][name] for name in operation} == operation


async def test_a_search_for_tools_brings_tools(world):
    """CommandCodeAI/command-code#893."""
    script(world, calling(("call_1", "tool_search", '{"query":"read"}')), said("Done."))
    call = await only_item(world, tools=[SEARCH, {**READ, "defer_loading": True}])
    assert list(offered(world)) == ["tool_search"]
    assert (call["type"], call["execution"], call["arguments"]) == ("tool_search_call", "client", {"query": "read"})
    found = {
        "type": "tool_search_output",
        "call_id": call["call_id"],
        "execution": "client",
        "status": "completed",
        "tools": [{**READ, "defer_loading": True}],
    }
    await stream_of(world, {"input": [*HI, call, found], "tools": [SEARCH]})
    assert "read_file" in offered(world)


async def test_tools_may_come_with_the_input(world):
    """openai/codex#39532."""
    item = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [READ]}
    script(world, calling(("call_1", "read_file", "{}")))
    call = await only_item(world, input=[item, *HI])
    assert list(offered(world)) == ["read_file"]
    assert (call["type"], call["name"]) == ("function_call", "read_file")


async def test_codex_finds_a_catalogue_of_the_models(world):
    """openai/codex#37122, #35758, #24286: without it "metadata not found", and no tool for patches."""
    async with world.http() as http:
        told = await http.get("/v1/models", params={"client_version": "0.171.0"})
        again = await http.get(
            "/v1/models", params={"client_version": "0.171.0"}, headers={"if-none-match": told.headers["etag"]}
        )
        plain = await http.get("/v1/models")
    (entry,) = [entry for entry in told.json()["models"] if entry["slug"] == MODEL]
    assert entry["context_window"] == world.chat.card.max_model_len
    assert (again.status_code, again.content) == (304, b"")
    assert plain.json()["object"] == "list"


@pytest.mark.parametrize("suffix", ["", "\nreturn x"])
async def test_a_suffix_reaches_the_engine(world, suffix):
    """docker/model-runner#403, vllm-project/vllm#9976; tests/contract/engine/test_fill_in_middle.py goes on."""
    async with world.http() as http:
        answer = await http.post("/v1/completions", json={"model": MODEL, "prompt": "def f(x):", "suffix": suffix})
    assert answer.status_code == 200, answer.text
    assert (orjson.loads(world.chat.requests[-1].body).get("suffix") or "") == suffix


async def test_a_body_of_responses_on_the_route_of_chats_is_told_the_way(world):
    """gabrii/Cursor-Azure-GPT-5#69."""
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", json={"model": MODEL, "input": "Hi"})
        other = await http.post("/v1/responses", json={"model": MODEL, "messages": HI})
    assert (answer.status_code, other.status_code) == (400, 400)
    assert "/v1/responses" in answer.json()["error"]["message"]
    assert "/v1/chat/completions" in other.json()["error"]["message"]
