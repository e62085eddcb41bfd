"""A tool of the service that does what a script says, and a model that calls it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from deployments.models.contract.engine import Usage
from serve_app.operations.responses.tools.contract import ToolAnswer
from tests.contract.http.answers import MODEL, SECRET
from tests.contract.http.conftest import serve
from tests.contract.http.response_calls import calling
from tests.waiting import eventually


@dataclass
class ScriptedTool:
    """A tool that answers like a web search with the given text; `hold` makes it wait.

    Requests name it as they name the code interpreter: there must be a schema for a tool that they name.
    """

    type: str = "code_interpreter"
    name: str = "web_search"
    note: str | None = None
    output: str = "Sunny."
    usage: Usage | None = None
    hold: asyncio.Event | None = None
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)
    was_cancelled: bool = False

    opened: list[Any] = field(default_factory=list)
    num_closed: int = 0

    async def open(self, tool, context) -> "ScriptedTool":
        self.opened.append((tool, context))
        return self

    def functions(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": self.name, "parameters": {"type": "object"}}}]

    def cite(self, text: str) -> list[dict[str, Any]]:
        at = text.find(self.note) if self.note else -1
        place = {"url": "https://example.com", "title": "Example", "start_index": at, "end_index": at + 1}
        return [] if at < 0 else [{"type": "url_citation", **place}]

    async def close(self) -> None:
        self.num_closed += 1

    def begin(self, name: str, arguments: str) -> dict[str, Any]:
        return {"id": f"ws_{len(self.asked)}", "type": "web_search_call", "status": "in_progress", "action": None}

    async def run(self, item, name, arguments, send) -> ToolAnswer:
        self.asked.append(arguments)
        send("response.web_search_call.in_progress")
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        await asyncio.sleep(0)
        send("response.web_search_call.searching")
        send("response.web_search_call.completed")
        action = {"type": "search", "query": arguments}
        return ToolAnswer({**item, "status": "completed", "action": action}, self.output, self.usage)


SEARCHING = {"type": "code_interpreter", "container": {"type": "auto"}}


SEARCH = calling(("call_1", "web_search", '{"q":"a"}'), words=("Let me look.",))


async def leave(world, tool: dict[str, Any], has_begun: Callable[[], object], has_ended: Callable[[], object]) -> None:
    """Ask for a stream with a tool, leave once its call has begun, and wait until it has ended."""
    async with serve(world.app()) as address:
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}, timeout=60) as http:
            body = {"model": MODEL, "input": "x", "stream": True, "tools": [tool]}
            asked = asyncio.create_task(http.post(address + "/v1/responses", json=body))
            await eventually(has_begun)
            asked.cancel()
            await asyncio.wait([asked])
        await eventually(has_ended)
