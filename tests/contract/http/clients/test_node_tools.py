"""Clients for Node that call the service's own tools, before the application behind a real server."""

import orjson

from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.file_search_calls import filled_store
from tests.contract.http.node import node, run_tests
from tests.contract.http.response_calls import calling
from tests.twins.engine import Script
from tests.twins.web import SITES

__all__ = ["node"]

CALLS = {
    "code_interpreter": ("code_interpreter", {"code": "print(6 * 7); open('a.txt', 'w').close()"}),
    "file_search": ("file_search", {"queries": ["moon"]}),
    "web_search": ("web_search", {"query": "lisbon"}),
    "mcp": ("store__stock", {"thing": "nails"}),
}


def script_of(page):
    answers = {
        "code_interpreter": "See [a](sandbox:/mnt/data/a.txt).",
        "file_search": "Cheese 【1.1】.",
        "web_search": f"Sunny: [Weather]({page}).",
        "mcp": "Seven.",
    }

    def script(request):
        """Call the tool that the user names, answer, and say in the next turn whether the call is still known."""
        messages = orjson.loads(request.body)["messages"]
        first, *_, last = [message["content"] for message in messages if message["role"] == "user"] * 2
        has_called = any(message["role"] == "tool" for message in messages)
        if last == "again":
            return Script(pieces(request, said("The tool was called before." if has_called else "Hm?")), USAGE)
        if has_called:
            return Script(pieces(request, said(answers[first])), USAGE)
        name, arguments = CALLS[first]
        return Script(pieces(request, calling(("call_1", name, orjson.dumps(arguments).decode()))), USAGE)

    return script


async def test_node_clients_read_what_the_services_tools_do(world, node, interpreter, indexer, web, mcp_server):
    store = await filled_store(world, indexer, {"moon.md": "The moon is made of cheese."})
    page = web.url(SITES[0])
    world.chat.script = script_of(page)
    async with serve(world.app()) as address:
        keys = {"API_KEY": SECRET, "MODEL": MODEL, "STORE": store.id, "MCP_URL": mcp_server.url, "PAGE": page}
        await run_tests(node, "tools.test.js", 12, BASE_URL=address + "/v1", **keys)
