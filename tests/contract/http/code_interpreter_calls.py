"""What a scripted model runs in the code interpreter, and how a response that may do so is asked for."""

from tests.contract.http.response_calls import calls, of_type, stream_of
from tests.twins.legal import fold

TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
OUTPUTS = ["code_interpreter_call.outputs"]


def runs(*codes: str, words: tuple[str, ...] = ()):
    """Return the events of a model that runs each of these."""
    return calls(*(("code_interpreter", {"code": code}) for code in codes), words=words)


async def stream(world, **body):
    return await stream_of(world, {"input": "x", "tools": [TOOL], **body})


async def respond(world, **body):
    return fold(await stream(world, **body))


def calls_of(response):
    return of_type(response, "code_interpreter_call")
