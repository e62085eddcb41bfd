"""The client of remote MCP servers, against a real one in each of its ways, and against servers that do their worst."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from deployments.tools.config import McpConfig, OutboundConfig
from deployments.tools.mcp.client import McpServers
from deployments.tools.mcp.messages import McpFailure, ServerAddress
from tests.contract.http.conftest import serve
from tests.twins.mcp_server import run_mcp_server
from tests.waiting import eventually

LOOPBACK = OutboundConfig.model_validate({"allowed_networks": ["127.0.0.0/8"]}).rules
TOOL = {"name": "a", "inputSchema": {"type": "object"}}
GREETING = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}

Send = Callable[[dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def connected(url: str, **bounds: Any):
    """A session with a server, and who holds its connection."""
    servers = McpServers(McpConfig.model_validate({"timeout_s": 120, **bounds}), LOOPBACK)
    session = servers.session(ServerAddress(url))
    try:
        yield session, servers
    finally:
        session.close()
        await eventually(lambda: not servers._holders, 60)
        servers.close()


@pytest.mark.parametrize("options", [{}, {"stateless_http": True}, {"json_response": True}])
@pytest.mark.parametrize("is_old", [False, True])
async def test_every_kind_of_server_is_understood(options, is_old):
    async with run_mcp_server(**options) as server:
        server.is_old = is_old
        async with connected(server.url) as (session, _):
            assert [tool.name for tool in await session.list_tools()] == ["stock", "order", "print.label"]
            for _ in range(2):
                assert (await session.call("stock", {"thing": "nails"})).text == "There are 7 nails."
            assert (await session.call("nothing", {})).is_error
            assert server.count("tools/list") == 1
            assert server.count("initialize") == is_old


async def test_a_session_that_nobody_uses_sends_nothing_and_one_that_was_closed_begins_anew():
    async with run_mcp_server() as server, connected(server.url) as (session, _):
        session.close()
        assert server.requests == []
        for _ in range(2):
            assert await session.list_tools()
            session.close()
        assert server.count("tools/list") == 2


async def test_a_call_that_is_taken_back_leaves_the_session_usable():
    async with run_mcp_server() as server, connected(server.url) as (session, _):
        server.hold = asyncio.Event()
        calling = asyncio.create_task(session.call("order", {"thing": "nails"}))
        await eventually(lambda: server.calls)
        calling.cancel()
        await asyncio.wait([calling])
        await eventually(lambda: server.num_interrupted)
        assert (await session.call("stock", {"thing": "nails"})).text == "There are 7 nails."


@asynccontextmanager
async def scripted(answers: dict[str, Any]):
    """A server of an old version that answers each method with a result, or as a function does."""

    async def app(scope, receive, send):
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        asked = orjson.loads(body) if body else {}
        method = asked.get("method", "")
        answer = {"initialize": GREETING, **answers}.get(method)
        if callable(answer):
            await answer(asked, send, receive)
        elif answer is None:
            await _send(send, 202 if method.startswith("notifications/") else 405, b"", b"text/plain")
        else:
            told = {"jsonrpc": "2.0", "id": asked["id"], "result": answer}
            await _send(send, 200, orjson.dumps(told), b"application/json")

    async with serve(app) as address:
        yield address


async def _send(send: Send, status: int, body: bytes, kind: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})


async def failure_of(answers: dict[str, Any], **bounds: Any) -> McpFailure:
    """Return what listing the tools of such a server fails with."""
    async with scripted(answers) as url, connected(url, **bounds) as (session, _):
        with pytest.raises(McpFailure) as caught:
            await session.list_tools()
    return caught.value


async def test_a_server_of_ones_own_hand_is_understood():
    async with scripted({"tools/list": {"tools": [TOOL]}}) as url, connected(url) as (session, _):
        assert [tool.name for tool in await session.list_tools()] == ["a"]


async def test_pages_without_end_are_not_followed():
    failure = await failure_of({"tools/list": {"tools": [TOOL], "nextCursor": "more"}})
    assert "more than 20 pages" in failure.message


@pytest.mark.parametrize(
    "answer", [{}, {"tools": "none"}, {"tools": [{"name": 5}]}, {"tools": [{**TOOL, "inputSchema": []}]}]
)
async def test_answers_that_are_not_mcp_are_told_as_such(answer):
    failure = await failure_of({"tools/list": answer})
    assert (failure.kind, "not as MCP has it" in failure.message) == ("mcp_protocol_error", True)


async def test_an_error_of_the_server_is_told_in_its_words_and_cut():
    async def refuse(asked, send, receive):
        error = {"code": -32001, "message": "No. " * 1000}
        told = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
        await _send(send, 400, orjson.dumps(told), b"application/json")

    failure = await failure_of({"tools/list": refuse})
    assert (failure.code, len(failure.message)) == (-32001, 1000)


async def test_an_answer_that_is_too_large_is_not_read_to_its_end():
    has_left = asyncio.Event()

    async def flood(asked, send, receive):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        leaving = asyncio.create_task(receive())
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"data: " + b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)
        has_left.set()

    failure = await failure_of({"tools/list": flood}, max_answer_mib=1)
    assert failure.message == "The answer is longer than 1048576 bytes."
    assert has_left.is_set()


async def test_an_answer_that_never_ends_is_left_when_the_time_is_up():
    async def drip(asked, send, receive):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        line = b"event: message\ndata: " + orjson.dumps(note) + b"\n\n"
        leaving = asyncio.create_task(receive())
        while not leaving.done():
            await send({"type": "http.response.body", "body": line, "more_body": True})
            await asyncio.wait([leaving], timeout=0.05)

    failure = await failure_of({"tools/list": drip}, timeout_s=0.5)
    assert failure.message == "The server took longer than 0.5 s."


async def test_what_a_server_asks_of_the_client_is_refused():
    refused = asyncio.Event()

    async def ask(asked, send, receive):
        if asked.get("method") != "tools/list":
            return
        wish = {
            "jsonrpc": "2.0",
            "id": "1",
            "method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 9},
        }
        told = {"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": [TOOL]}}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for message in (wish, told):
            line = b"event: message\ndata: " + orjson.dumps(message) + b"\n\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def note(asked, send, receive):
        assert "error" in asked
        refused.set()
        await _send(send, 202, b"", b"text/plain")

    async with scripted({"tools/list": ask, "": note}) as url, connected(url) as (session, _):
        assert [tool.name for tool in await session.list_tools()] == ["a"]
        await asyncio.wait_for(refused.wait(), 120)
