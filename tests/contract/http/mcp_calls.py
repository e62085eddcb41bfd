"""What a scripted model calls of a remote MCP server, and how a response that may do so is asked for."""

import orjson

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import calls, of_type, script, stream_of
from tests.twins.legal import fold

STOCK, ORDER, PRINT = "store__stock", "store__order", "store__print_label_6ce3507f"


def tool(server, **more):
    return {"type": "mcp", "server_label": "store", "server_url": server.url, "require_approval": "never", **more}


NAILS = calls((STOCK, {"thing": "nails"}))
ORDERING = calls((ORDER, {"thing": "nails", "amount": 3}))


async def stream(world, **body):
    return await stream_of(world, {"input": "x", **body})


async def respond(world, **body):
    return fold(await stream(world, **body))


async def refused(world, **body):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **body})
    return answer.status_code, answer.json()["error"]


def offered(world, number=0):
    return [one["function"]["name"] for one in orjson.loads(world.chat.requests[number].body).get("tools", ())]


async def ask_for_approval(world, server, **more):
    """Return a response that waits for the approval of an order."""
    script(world, ORDERING, said("Done."))
    first = await respond(world, tools=[tool(server, require_approval=None)], **more)
    assert first["status"] == "completed"
    assert server.calls == []
    return first


def decide(response, approve, **more):
    """Return the input that decides on every request of a response."""
    return [
        {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve, **more}
        for item in of_type(response, "mcp_approval_request")
    ]
