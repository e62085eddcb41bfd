"""Recorded streams of the responses interface, reviewed as text: a change of a byte on the wire shows up here.

To record them anew, set MANTA_RECORD_GOLDEN=1 and look at what changed.
"""

import asyncio
import os
import re
from pathlib import Path

import pytest

from deployments.models.contract.errors import EngineDied
from deployments.models.contract.events import (
    Finished,
    Logprobs,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)
from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.file_search_calls import filled_store
from tests.contract.http.response_calls import calling
from tests.contract.http.tool_calls import SEARCH, SEARCHING, ScriptedTool
from tests.twins.engine import Script
from tests.twins.legal import fold, split

PLACE = Path(__file__).parents[3] / "golden" / "responses"
_IDS = re.compile(r"\b(resp|msg|fc|rs|conv|ci|cntr|cfile|mcpl|mcpr|mcp|fs|vs|file|ws)[_-][0-9a-f]{32}\b")
_PORTS = re.compile(r"127\.0\.0\.1:\d+|(?<=\.example):\d{5}\b")
TOKEN = {"token": "Hi", "bytes": [72, 105], "logprob": -0.25, "top_logprobs": []}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALLS = [
    [TextDelta("text", 0, "Let me see.")],
    [ToolCallStart("tool_call", 0, 0, "call_1", "f"), ToolArgumentsDelta("tool_arguments", 0, 0, '{"a"')],
    [ToolArgumentsDelta("tool_arguments", 0, 0, ":1}")],
    [ToolCallStart("tool_call", 0, 1, "call_2", "f")],
    [Finished("finished", 0, "tool_calls")],
]
CASES = {
    "text": ({"input": "Hi.", "metadata": {"a": "b"}}, said("Hello", " there")),
    "reasoning": ({"input": "Hi."}, [[ReasoningDelta("reasoning", 0, "Hm.")], *said("Yes.")]),
    "function_calls": ({"input": "Hi.", "tools": [FUNCTION], "store": False}, CALLS),
    "cut_off": (
        {"input": "Hi.", "max_output_tokens": 2, "instructions": "Be brief."},
        said("One two", reason="length"),
    ),
    "filtered": ({"input": "Hi."}, [[Finished("finished", 0, "content_filter")]]),
    "logprobs": (
        {"input": "Hi.", "include": ["message.output_text.logprobs"]},
        [[TextDelta("text", 0, "Hi"), Logprobs("logprobs", 0, [TOKEN])], [Finished("finished", 0, "stop")]],
    ),
    "failed": ({"input": "Hi."}, [[TextDelta("text", 0, "One")], EngineDied("gone")]),
    "background": ({"input": "Hi.", "background": True}, said("Hello")),
    "code_interpreter": (
        {"input": "Hi.", "tools": [SEARCHING], "include": ["code_interpreter_call.outputs"]},
        calling(
            ("call_1", "code_interpreter", '{"code":"print(6 * 7); open(\\"a.txt\\", \\"w\\").close()"}'),
            words=("Hm.",),
        ),
    ),
    "mcp": (
        {"input": "Hi."},
        calling(
            ("call_1", "store__stock", '{"thing":"nails"}'),
            ("call_2", "store__order", '{"thing":"nails"}'),
            words=("Hm.",),
        ),
    ),
    "web_search": (
        {"input": "Hi.", "tools": [{"type": "web_search"}], "include": ["web_search_call.action.sources"]},
        calling(("call_1", "web_search", '{"query":"lisbon weather"}'), words=("Hm.",)),
    ),
    "server_tool": ({"input": "Hi.", "tools": [SEARCHING]}, SEARCH),
}


def plain(text: str) -> str:
    """Return a stream with its random ids numbered in the order in which they come, and one port for all."""
    names: dict[str, str] = {}
    text = _PORTS.sub(lambda found: "127.0.0.1:8000" if found[0][0] == "1" else ":12345", text)
    return _IDS.sub(lambda found: names.setdefault(found[0], f"{found[1]}_{len(names)}"), text)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"code_interpreter", "mcp", "web_search"}))
async def test_a_stream_is_what_was_recorded(world, name):
    if name == "server_tool":
        world.built_ins["code_interpreter"] = ScriptedTool()
    await check(world, name)


async def test_the_code_interpreters_stream_is_what_was_recorded(world, interpreter):
    await check(world, "code_interpreter")


async def test_the_stream_of_a_remote_servers_tools_is_what_was_recorded(world, mcp_server):
    policy = {"never": {"read_only": True}}
    tool = {"type": "mcp", "server_label": "store", "server_url": mcp_server.url, "require_approval": policy}
    await check(world, "mcp", tools=[tool])


async def test_the_file_searchs_stream_is_what_was_recorded(world, vector_stores, indexer):
    store = await filled_store(world, indexer, {"notes.md": "The moon is made of cheese."})
    include = ["file_search_call.results"]
    tool = {"type": "file_search", "vector_store_ids": [store.id], "ranking_options": {"ranker": "auto"}}
    search = calling(("call_1", "file_search", '{"queries":["What is the moon made of?"]}'), words=("Let me look.",))
    body = {"input": "Hi.", "tools": [tool], "include": include}
    await check(world, "file_search", (body, search), said("Of cheese", " 【1.1】", "."))


async def test_the_web_searchs_stream_is_what_was_recorded(world, web):
    link = f"[Weather](http://weather.example:{web.port}/lisbon)"
    await check(world, "web_search", later=said("Sunny: ", link, "."))


async def check(world, name, case=None, later=None, **more):
    body, events = case or CASES[name]
    later = later or said("Found.")

    def script(request):
        told = later if len(world.chat.streams) else events
        failure = told[-1] if isinstance(told[-1], Exception) else None
        steps = pieces(request, [piece for piece in told if piece is not failure])
        return Script(steps if failure is None else [*steps[: len(told) - 1], failure], USAGE)

    world.chat.script = script
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "stream": True, **body, **more})
    fold(split(answer.content))
    path, text = PLACE / f"{name}.txt", plain(answer.text)
    if os.environ.get("MANTA_RECORD_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


async def test_every_write_is_one_whole_frame(world):
    """Some clients lose a frame that comes in two reads, so none is ever written in two."""
    world.chat.script = lambda request: Script(pieces(request, CALLS), USAGE)
    writes: list[bytes] = []
    body = b'{"model":"demo/chat","input":"Hi.","stream":true,"tools":[{"type":"function","name":"f"}]}'
    app = world.app()

    incoming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return incoming.pop() if incoming else await asyncio.Event().wait()

    async def send(message):
        if message.get("body"):
            writes.append(message["body"])

    headers = [(b"authorization", f"Bearer {next(iter(world.gatekeeper.principals))}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "query_string": b"", "headers": headers}
    await app({**scope, "http_version": "1.1", "scheme": "http", "root_path": "", "raw_path": b""}, receive, send)
    assert writes[-1] == b"data: [DONE]\n\n"
    assert all(write.endswith(b"\n\n") and write.count(b"\n\n") == 1 for write in writes)
    fold(split(b"".join(writes)))
