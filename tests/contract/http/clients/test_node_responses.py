"""Clients for Node over the responses interface, before the application behind a real server."""

import orjson

from deployments.models.contract.errors import EngineDied
from deployments.models.contract.events import Finished, ReasoningDelta, ToolArgumentsDelta, ToolCallStart
from tests.contract.http.answers import MODEL, SECRET, USAGE, answer, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.node import node, run_tests
from tests.twins.engine import Script

__all__ = ["node"]


def script(request):
    """Do what the user's first message says."""
    messages = orjson.loads(request.body)["messages"]
    told = next(message["content"] for message in messages if message["role"] == "user")
    match told:
        case "call" if messages[-1]["role"] == "tool":
            return Script(pieces(request, said(messages[-1]["content"])), USAGE)
        case "call":
            begun = [ToolCallStart("tool_call", 0, 0, "call_1", "weather")]
            arguments = [[ToolArgumentsDelta("tool_arguments", 0, 0, text)] for text in ('{"city"', ':"Kiel"}')]
            return Script(pieces(request, [begun, *arguments, [Finished("finished", 0, "tool_calls")]]), USAGE)
        case "think":
            thought = [[ReasoningDelta("reasoning", 0, word)] for word in ("Hm", "m.")]
            return Script(pieces(request, [*thought, *said("Hello", " there", "!")]), USAGE)
        case "object":
            return Script(pieces(request, said('{"city":', '"Kiel"}')), USAGE)
        case "break":
            return Script([*pieces(request, said("one"))[:1], EngineDied("gone")])
    return answer(request)


async def test_node_clients_work_unmodified(world, node):
    world.chat.script = script
    async with serve(world.app()) as address:
        await run_tests(node, "responses.test.js", 15, API_KEY=SECRET, MODEL=MODEL, BASE_URL=address + "/v1")
