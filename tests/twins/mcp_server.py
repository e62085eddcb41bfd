"""A real MCP server on loopback, over streamable HTTP, that tells what it was asked."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from tests.waiting import eventually


@dataclass
class McpServerTwin:
    """The server: the methods of the messages that it got, the headers that came with each, the calls of its tools.

    It answers everything with `status` where that is set, waits for `hold` within a call, and does not know the newest
    version of the protocol if it `is_old`.
    """

    url: str = ""
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    status: int | None = None
    hold: asyncio.Event | None = None
    is_old: bool = False
    num_interrupted: int = 0

    def count(self, method: str) -> int:
        return self.requests.count(method)


def create_server(twin: McpServerTwin) -> MCPServer:
    root = logging.getLogger()
    handlers = list(root.handlers)
    server = MCPServer("warehouse", log_level="CRITICAL")
    root.handlers[:] = handlers  # The library adds one of its own.

    @server.tool(description="How many of a thing there are.", annotations=ToolAnnotations(read_only_hint=True))
    async def stock(thing: str) -> str:
        twin.calls.append(("stock", thing))
        return f"There are 7 {thing}."

    @server.tool(description="Orders more of a thing.")
    async def order(thing: str, amount: int = 1) -> str:
        twin.calls.append(("order", (thing, amount)))
        if twin.hold is not None:
            try:
                await twin.hold.wait()
            except asyncio.CancelledError:
                twin.num_interrupted += 1
                raise
        return f"Ordered {amount} {thing}."

    @server.tool(name="print.label", description="Prints.")
    async def print_label(size: int) -> str:
        return "x" * size

    return server


@asynccontextmanager
async def run_mcp_server(**options: Any) -> AsyncIterator[McpServerTwin]:
    """Serve it; `options` are the library's, such as `stateless_http`."""
    twin = McpServerTwin()
    inner = create_server(twin).streamable_http_app(**options)

    async def app(scope, receive, send):
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        body, method = await _note(twin, scope, receive)
        if twin.status is not None:
            await _send(send, twin.status, b"no")
            return
        if twin.is_old and method == "server/discover":
            await _send(send, 400, b"What?")
            return
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def again():
            return pending.pop() if pending else await receive()

        await inner(scope, again, send)

    listener = socket.create_server(("127.0.0.1", 0))
    twin.url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    await eventually(lambda: server.started)
    try:
        yield twin
    finally:
        server.should_exit = True
        await running
        listener.close()


async def _note(twin: McpServerTwin, scope, receive) -> tuple[bytes, str]:
    """Return the body of a request and the method that it asks for, and note it."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["method"] != "POST":
        return body, ""
    method = orjson.loads(body).get("method", "")
    twin.requests.append(method)
    twin.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
    return body, method


async def _send(send, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})
