"""What a scripted model looks for on the web, and how a response that may do so is asked for."""

from tests.contract.http.response_calls import calls, messages, of_type, stream_of
from tests.twins.legal import fold
from tests.twins.web import SITES

TOOL = {"type": "web_search"}
SOURCES = ["web_search_call.action.sources"]
LISBON, OUTLOOK, STORM, SPORT, REPORT, DATA, GONE, *_ = SITES


def searches(query: str = "lisbon", **more):
    return calls(("web_search", {"query": query}), **more)


def opens(url: str):
    return calls(("open_page", {"url": url}))


def finds(url: str, pattern: str):
    return calls(("find_in_page", {"url": url, "pattern": pattern}))


async def stream(world, **body):
    return await stream_of(world, {"input": "x", "tools": [TOOL], **body})


async def respond(world, **body):
    return fold(await stream(world, **body))


def calls_of(response):
    return of_type(response, "web_search_call")


def told_model(world, number=-1):
    """Return what the model was last told by the tool."""
    return [message["content"] for message in messages(world) if message["role"] == "tool"][number]
