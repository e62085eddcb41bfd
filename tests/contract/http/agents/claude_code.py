"""Claude Code."""

from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.contract.http.agents.places import Agent, Place, events_in
from tests.contract.http.agents.tasks import (
    AFTER,
    BEFORE,
    FILE,
    AskServer,
    Call,
    Deed,
    Delegate,
    Edit,
    Read,
    Results,
    Run,
)

_TOOLS = "Read,Edit,Bash,Task,Agent,mcp__shop"


@dataclass(frozen=True, slots=True)
class ClaudeCode(Agent):
    """Claude Code as the guide sets it up."""

    programs: Path

    def call(self, deed: Deed, place: Place, results: Results) -> Call:
        path = str(place.work / FILE)
        match deed:
            case Read():
                return "Read", {"file_path": path}
            case Edit():
                return "Edit", {"file_path": path, "old_string": BEFORE, "new_string": AFTER}
            case Run(command):
                return "Bash", {"command": command, "description": "Show the file."}
            case AskServer(thing):
                return "mcp__shop__stock", {"thing": thing}
            case Delegate(prompt):
                return "Agent", {"description": "Look.", "prompt": prompt, "subagent_type": "general-purpose"}

    async def run(self, prompt: str, place: Place, shop: str = "") -> str:
        servers = {"mcpServers": {"shop": {"type": "http", "url": shop}}} if shop else {"mcpServers": {}}
        place.write("mcp.json", orjson.dumps(servers).decode())
        output = await self.ask(prompt, place, "--strict-mcp-config", "--mcp-config", str(place.home / "mcp.json"))
        events = events_in(output)
        assert (events[-1]["type"], events[-1]["is_error"]) == ("result", False), events
        return str(events[-1]["result"])

    async def ask(self, prompt: str, place: Place, *options: str) -> str:
        """Return what a run prints."""
        form = ("--output-format", "stream-json", "--verbose", "--allowedTools", _TOOLS)
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        return await place.run(
            (self.programs / "claude", "-p", prompt, *form, *options), **place.exports("Claude Code"), **quiet
        )
