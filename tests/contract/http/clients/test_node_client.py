"""OpenAI's client for Node against the application behind a real server."""

import asyncio

import orjson

from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.models.contract.events import Finished, TextDelta, ToolArgumentsDelta, ToolCallStart
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET, answer, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.node import node, run_tests
from tests.twins.engine import Script
from tests.waiting import eventually

__all__ = ["node"]

LIMITED = "sk-manta-limited-0123456789abcdefghijklmnop"


def scripts():
    """Return what the engine does for each prompt."""
    busy = [Overloaded("full", 0.01), Overloaded("full", 0.01)]

    def script(request):
        told = orjson.loads(request.body)["messages"][0]["content"]
        if told == "call":
            call = ToolCallStart("tool_call", 0, 0, "call_1", "weather")
            arguments = [[ToolArgumentsDelta("tool_arguments", 0, 0, text)] for text in ('{"city"', ':"Kiel"}')]
            return Script(pieces(request, [[call], *arguments, [Finished("finished", 0, "tool_calls")]]))
        if told == "break":
            return Script([*pieces(request, said("one"))[:1], EngineDied("gone")])
        if told == "hang":
            return Script([*pieces(request, [[TextDelta("text", 0, "one")]])[:1], asyncio.Event()])
        if told == "busy" and busy:
            return Script([busy.pop()])
        return answer(request)

    return script


async def test_node_client_works_unmodified(world, node):
    world.principal(LIMITED, key_id="key_2", tokens_per_minute=100)
    world.chat.script = scripts()
    async with serve(world.app()) as address:
        keys = {"API_KEY": SECRET, "LIMITED_KEY": LIMITED, "MODEL": MODEL, "EMBEDDING_MODEL": EMBEDDING_MODEL}
        await run_tests(node, "client.test.js", 14, BASE_URL=address + "/v1", **keys)
        hung = [stream for stream in world.chat.streams if b"hang" in stream.request.body]
        await eventually(lambda: hung[0].is_aborted)
