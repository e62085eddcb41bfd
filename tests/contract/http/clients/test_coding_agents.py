"""Coding agents, unmodified, against the application behind a real server: the model follows a script."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from deployments.operations import operations_of
from serve_app.schemas.codex import codex_catalogue
from tests.contract.http.answers import MODEL, SECRET, said
from tests.contract.http.conftest import serve
from tests.contract.http.node import agents
from tests.contract.http.response_calls import calling, calling_custom, messages, script
from tests.twins.engine import model_card
from tests.twins.mcp_server import run_mcp_server

__all__ = ["agents"]

CONFIG = """
model = "{model}"
model_provider = "manta"

[model_providers.manta]
name = "Manta"
base_url = "{address}/v1"
env_key = "MANTA_API_KEY"
wire_api = "responses"
supports_websockets = {sockets}
"""


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
"""What Codex reads in a catalog about a model that searches for tools."""


async def run_agent(command: Sequence[str | Path], place: Path, **environment: str) -> list[Any]:
    """Run an agent in the folder `work` of a place; return the JSON that it prints, a line each."""
    (place / "work").mkdir()
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=place / "work",
        env={**os.environ, "HOME": str(place), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 90)
    finally:
        if process.returncode is None:
            process.kill()
    return [orjson.loads(line) for line in output.splitlines() if line.startswith(b"{")]


async def run_codex(
    programs: Path, place: Path, address: str, *, sockets: bool = False, before: str = "", more: str = ""
) -> str:
    """Return what Codex says at the end of a task that it completed."""
    home = place / "codex"
    home.mkdir(exist_ok=True)
    config = CONFIG.format(model=MODEL, address=address, sockets=str(sockets).lower())
    (home / "config.toml").write_text(before + config + more)
    command = (
        programs / "codex",
        "exec",
        "--skip-git-repo-check",
        "--sandbox",
        "danger-full-access",
        "--json",
        "Do it.",
    )
    events = await run_agent(command, place, CODEX_HOME=str(home), MANTA_API_KEY=SECRET)
    assert events[-1]["type"] == "turn.completed", events
    return [event["item"] for event in events if event["type"] == "item.completed"][-1]["text"]


async def run_claude(programs: Path, place: Path, address: str) -> str:
    """Return what Claude Code says at the end of a task that it completed."""
    output = ("--output-format", "stream-json", "--verbose")
    command = (programs / "claude", "-p", "Do it.", *output, "--allowedTools", "Bash", "--model", MODEL)
    options = {"ANTHROPIC_SMALL_FAST_MODEL": MODEL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    events = await run_agent(command, place, ANTHROPIC_BASE_URL=address, ANTHROPIC_AUTH_TOKEN=SECRET, **options)
    assert (events[-1]["type"], events[-1]["is_error"]) == ("result", False), events
    return events[-1]["result"]


@pytest.mark.parametrize("sockets", [False, True], ids=["http", "websocket"])
async def test_codex_runs_a_command_and_ends_its_task(world, agents, tmp_path, sockets):
    command = orjson.dumps({"cmd": "echo 'print(1)' > a.py && cat a.py"}).decode()
    script(world, calling(("call_1", "exec_command", command)), said("It is done."))
    async with serve(world.app(), ws="websockets-sansio") as address:
        assert await run_codex(agents, tmp_path, address, sockets=sockets) == "It is done."
    assert (tmp_path / "work" / "a.py").read_text() == "print(1)\n"
    assert "print(1)" in messages(world)[-1]["content"]


async def test_codex_works_from_the_catalogue_of_the_service(world, agents, tmp_path):
    operations = operations_of("generate")
    card = model_card(MODEL, *operations, has_tools=True, has_reasoning=True, max_model_len=100_000)
    catalogue = codex_catalogue([card])
    catalogue["models"][0]["apply_patch_tool_type"] = None  # A custom tool, which Codex would offer the model.
    (tmp_path / "catalogue.json").write_bytes(orjson.dumps(catalogue))
    script(world, calling(("call_1", "exec_command", '{"cmd":"echo 5"}')), said("It is done."))
    async with serve(world.app()) as address:
        before = f'model_catalog_json = "{tmp_path}/catalogue.json"\n'
        assert await run_codex(agents, tmp_path, address, before=before) == "It is done."
    assert catalogue["models"][0]["base_instructions"].strip() in messages(world)[0]["content"]


async def test_codex_calls_the_tool_of_an_mcp_server(world, agents, tmp_path):
    script(world, calling(("call_1", "mcp__shop__stock", '{"thing":"cups"}')), said("Seven."))
    async with run_mcp_server() as shop, serve(world.app()) as address:
        server = f'\n[mcp_servers.shop]\nurl = "{shop.url}"\ndefault_tools_approval_mode = "approve"\n'
        assert await run_codex(agents, tmp_path, address, more=server) == "Seven."
    assert shop.calls == [("stock", "cups")]
    assert "There are 7 cups." in str(messages(world)[-1]["content"])


async def test_codex_searches_for_the_tools_of_an_mcp_server(world, agents, tmp_path):
    catalog = tmp_path / "catalog.json"
    catalog.write_bytes(orjson.dumps({"models": [MODEL_ENTRY]}))
    searching = calling(("call_1", "tool_search", '{"query":"stock of things"}'))
    script(world, searching, calling(("call_2", "mcp__shop__stock", '{"thing":"cups"}')), said("Seven."))
    async with run_mcp_server() as shop, serve(world.app()) as address:
        server = f'\n[mcp_servers.shop]\nurl = "{shop.url}"\ndefault_tools_approval_mode = "approve"\n'
        before = f'model_catalog_json = "{catalog}"\n'
        assert await run_codex(agents, tmp_path, address, before=before, more=server) == "Seven."
    assert shop.calls == [("stock", "cups")]
    asked = [request.body for request in world.chat.requests if b"tool_search" in request.body]
    names = [{tool["function"]["name"] for tool in orjson.loads(body)["tools"]} for body in asked[:2]]
    assert "mcp__shop__stock" in names[1] - names[0]


async def test_codex_applies_a_patch_with_its_own_tool(world, agents, tmp_path):
    catalog = tmp_path / "catalog.json"
    catalog.write_bytes(orjson.dumps({"models": [{**MODEL_ENTRY, "apply_patch_tool_type": "freeform"}]}))
    patch = '*** Begin Patch\n*** Add File: a.py\n+print("1")\n*** End Patch'
    script(world, calling_custom(("call_1", "apply_patch", patch)), said("It is done."))
    async with serve(world.app()) as address:
        before = f'model_catalog_json = "{catalog}"\n'
        assert await run_codex(agents, tmp_path, address, before=before) == "It is done."
    assert (tmp_path / "work" / "a.py").read_text() == 'print("1")\n'
    assert orjson.loads(world.chat.requests[0].body)["custom_tools"]["apply_patch"].startswith("root ::= ")
    assert "a.py" in messages(world)[-1]["content"]


async def test_claude_code_runs_a_command_and_ends_its_task(world, agents, tmp_path):
    command = orjson.dumps({"command": "echo 'print(1)' > a.py && cat a.py", "description": "Write it."}).decode()
    script(world, calling(("call_1", "Bash", command)), said("It is done."))
    async with serve(world.app()) as address:
        assert await run_claude(agents, tmp_path, address) == "It is done."
    assert (tmp_path / "work" / "a.py").read_text() == "print(1)\n"
    assert messages(world)[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "print(1)"}
    assert "x-anthropic-billing-header" not in str(messages(world))
