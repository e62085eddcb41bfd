"""What Codex does only with a catalogue of models: the tools that it has then, and its instructions."""

import orjson

from deployments.operations import operations_of
from serve_app.schemas.codex import codex_catalogue
from tests.contract.http.agents.codex import Codex
from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import calling, calling_custom, messages, script
from tests.twins.engine import model_card
from tests.twins.mcp_server import run_mcp_server

MODEL_ENTRY = {
    "slug": MODEL,
    "display_name": "Demo",
    "default_reasoning_level": "medium",
    "supported_reasoning_levels": [{"effort": "medium", "description": "Some."}],
    "shell_type": "unified_exec",
    "visibility": "list",
    "supported_in_api": True,
    "priority": 1,
    "base_instructions": "You are a coding agent.",
    "truncation_policy": {"mode": "bytes", "limit": 10_000},
    "support_verbosity": False,
    "supports_reasoning_summaries": False,
    "supports_parallel_tool_calls": True,
    "supports_search_tool": True,
    "context_window": 200_000,
    "experimental_supported_tools": [],
    "input_modalities": ["text"],
}
"""What Codex reads in a catalogue about a model that searches for tools."""


async def run_codex(agents, place, models, shop="") -> str:
    """Return what Codex says at the end of a task, with a catalogue of these models."""
    place.write("catalogue.json", orjson.dumps({"models": models}).decode())
    settings = f'model_catalog_json = "{place.home}/catalogue.json"\n'
    return await Codex(agents, sockets=False, settings=settings).run("Do it.", place, shop)


async def test_codex_works_from_the_catalogue_of_the_service(world, agents, place):
    operations = operations_of("generate")
    card = model_card(MODEL, *operations, has_tools=True, has_reasoning=True, max_model_len=100_000)
    [entry] = codex_catalogue([card])["models"]
    entry["apply_patch_tool_type"] = None  # A custom tool, which Codex would offer the model.
    script(world, calling(("call_1", "exec_command", '{"cmd":"echo 5"}')), said("It is done."))
    assert await run_codex(agents, place, [entry]) == "It is done."
    assert entry["base_instructions"].strip() in messages(world)[0]["content"]


async def test_codex_searches_for_the_tools_of_an_mcp_server(world, agents, place):
    searching = calling(("call_1", "tool_search", '{"query":"stock of things"}'))
    script(world, searching, calling(("call_2", "mcp__shop__stock", '{"thing":"cups"}')), said("Seven."))
    async with run_mcp_server() as shop:
        assert await run_codex(agents, place, [MODEL_ENTRY], shop.url) == "Seven."
    assert shop.calls == [("stock", "cups")]
    asked = [request.body for request in world.chat.requests if b"tool_search" in request.body]
    names = [{tool["function"]["name"] for tool in orjson.loads(body)["tools"]} for body in asked[:2]]
    assert "mcp__shop__stock" in names[1] - names[0]


async def test_codex_applies_a_patch_with_its_own_tool(world, agents, place):
    patch = '*** Begin Patch\n*** Add File: a.py\n+print("1")\n*** End Patch'
    script(world, calling_custom(("call_1", "apply_patch", patch)), said("It is done."))
    assert await run_codex(agents, place, [{**MODEL_ENTRY, "apply_patch_tool_type": "freeform"}]) == "It is done."
    assert (place.work / "a.py").read_text() == 'print("1")\n'
    assert orjson.loads(world.chat.requests[0].body)["custom_tools"]["apply_patch"].startswith("root ::= ")
    assert "a.py" in messages(world)[-1]["content"]
