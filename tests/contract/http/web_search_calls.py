"""What a scripted model looks for on the web, and how a response that may do so is asked for."""

import orjson

from tests.contract.http.answers import MODEL
from tests.contract.http.response_calls import calling, messages
from tests.twins.legal import fold, split
from tests.twins.web import SITES

TOOL = {"type": "web_search"}
SOURCES = ["web_search_call.action.sources"]
LISBON, OUTLOOK, STORM, SPORT, REPORT, DATA, GONE, *_ = SITES


def calls(*asked: tuple[str, dict[str, str]], words: tuple[str, ...] = ()):
    """Return the events of a model that calls these functions."""
    told = [(f"call_{n}", name, orjson.dumps(arguments).decode()) for n, (name, arguments) in enumerate(asked)]
    return calling(*told, words=words)


def searches(query: str = "lisbon", **more):
    return calls(("web_search", {"query": query}), **more)


def opens(url: str):
    return calls(("open_page", {"url": url}))


def finds(url: str, pattern: str):
    return calls(("find_in_page", {"url": url, "pattern": pattern}))


async def stream(world, **body):
    async with world.http() as http:
        body = {"model": MODEL, "input": "x", "stream": True, "tools": [TOOL], **body}
        answer = await http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return split(answer.content)


async def respond(world, **body):
    return fold(await stream(world, **body))


def calls_of(response):
    return [item for item in response["output"] if item["type"] == "web_search_call"]


def told_model(world, number=-1):
    """Return what the model was last told by the tool."""
    return [message["content"] for message in messages(world) if message["role"] == "tool"][number]
