"""What a scripted model runs in the code interpreter, and how a response that may do so is asked for."""

import orjson

from tests.contract.http.answers import MODEL
from tests.contract.http.response_calls import calling
from tests.twins.legal import fold, split

TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
OUTPUTS = ["code_interpreter_call.outputs"]


def runs(*codes: str, words: tuple[str, ...] = ()):
    """Return the events of a model that runs each of these."""
    calls = [(f"call_{n}", "code_interpreter", orjson.dumps({"code": code}).decode()) for n, code in enumerate(codes)]
    return calling(*calls, words=words)


async def stream(world, **body):
    async with world.http() as http:
        body = {"model": MODEL, "input": "x", "stream": True, "tools": [TOOL], **body}
        answer = await http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return split(answer.content)


async def respond(world, **body):
    return fold(await stream(world, **body))


def calls_of(response):
    return [item for item in response["output"] if item["type"] == "code_interpreter_call"]
