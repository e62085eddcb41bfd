"""Codex's command line, unmodified, against the application behind a real server: its model follows a script."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.contract.http.answers import MODEL, SECRET, said
from tests.contract.http.conftest import serve
from tests.contract.http.node import agents
from tests.contract.http.response_calls import calling, messages, script
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


async def run_codex(program: Path, place: Path, address: str, *, sockets: bool = False, more: str = "") -> list[Any]:
    """Run a task of Codex in an empty folder; return the events that it prints."""
    home, work = place / "home", place / "work"
    for folder in (home, work):
        folder.mkdir()
    config = CONFIG.format(model=MODEL, address=address, sockets=str(sockets).lower())
    (home / "config.toml").write_text(config + more)
    process = await asyncio.create_subprocess_exec(
        *(program / "codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json", "Do it."),
        cwd=work,
        env={**os.environ, "CODEX_HOME": str(home), "HOME": str(home), "MANTA_API_KEY": SECRET},
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


def last_words(events: Sequence[Any]) -> str:
    """Return what the agent says at the end of a turn that completed."""
    assert events[-1]["type"] == "turn.completed", events
    return [event["item"] for event in events if event["type"] == "item.completed"][-1]["text"]


@pytest.mark.parametrize("sockets", [False, True], ids=["http", "websocket"])
async def test_codex_runs_a_command_and_ends_its_task(world, agents, tmp_path, sockets):
    command = orjson.dumps({"cmd": "echo 'print(1)' > a.py && cat a.py"}).decode()
    script(world, calling(("call_1", "exec_command", command)), said("It is done."))
    async with serve(world.app(), ws="websockets-sansio") as address:
        events = await run_codex(agents, tmp_path, address, sockets=sockets)
    assert last_words(events) == "It is done."
    assert (tmp_path / "work" / "a.py").read_text() == "print(1)\n"
    assert "print(1)" in messages(world)[-1]["content"]


async def test_codex_calls_the_tool_of_an_mcp_server(world, agents, tmp_path):
    script(world, calling(("call_1", "mcp__shop__stock", '{"thing":"cups"}')), said("Seven."))
    async with run_mcp_server() as shop, serve(world.app()) as address:
        server = f'\n[mcp_servers.shop]\nurl = "{shop.url}"\ndefault_tools_approval_mode = "approve"\n'
        events = await run_codex(agents, tmp_path, address, more=server)
    assert last_words(events) == "Seven."
    assert shop.calls == [("stock", "cups")]
    assert "There are 7 cups." in str(messages(world)[-1]["content"])
