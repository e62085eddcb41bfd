"""What a scripted model calls of a remote MCP server, and how a response that may do so is asked for."""

import orjson

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import calling, script
from tests.twins.legal import fold, split

STOCK, ORDER, PRINT = "store__stock", "store__order", "store__print_label_6ce3507f"


def tool(server, **more):
    return {"type": "mcp", "server_label": "store", "server_url": server.url, "require_approval": "never", **more}


def calls(*wanted, words=()):
    """Return the events of a model that calls functions: (name, arguments) each."""
    told = [(f"call_{n}", name, orjson.dumps(arguments).decode()) for n, (name, arguments) in enumerate(wanted)]
    return calling(*told, words=words)


NAILS = calls((STOCK, {"thing": "nails"}))
ORDERING = calls((ORDER, {"thing": "nails", "amount": 3}))


async def stream(world, **body):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "stream": True, **body})
    assert answer.status_code == 200, answer.text
    return split(answer.content)


async def respond(world, **body):
    return fold(await stream(world, **body))


async def refused(world, **body):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **body})
    return answer.status_code, answer.json()["error"]


def of_type(response, kind):
    return [item for item in response["output"] if item["type"] == kind]


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
