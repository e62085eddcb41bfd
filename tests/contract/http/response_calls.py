"""What scripted models say and call over the responses interface, and how a response is asked for."""

import secrets
from typing import Any

import orjson

from batch.calls import LineCalls
from batch.concurrency import ConcurrencyLimiter
from deployments.models.contract.engine import Usage
from deployments.models.contract.events import Finished, TextDelta, ToolArgumentsDelta, ToolCallStart
from serve_app.operations.registry import create_operations
from serve_app.operations.routing import cache_salts
from serve_app.validation.batch_lines import BatchRequest
from tests.contract.http.answers import MODEL, USAGE, pieces
from tests.contract.http.conftest import principal
from tests.twins.engine import Script
from tests.twins.legal import split

OTHER = "sk-manta-another-secret-0000"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def calling(*calls: tuple[str, str, str], words: tuple[str, ...] = ()) -> list[list[Any]]:
    """Return the events of an answer that calls tools: (call id, name, arguments) each."""
    told: list[list[Any]] = [[TextDelta("text", 0, word)] for word in words]
    for number, (call_id, name, arguments) in enumerate(calls):
        told.append([ToolCallStart("tool_call", 0, number, call_id, name)])
        half = len(arguments) // 2
        told += [
            [ToolArgumentsDelta("tool_arguments", 0, number, part)] for part in (arguments[:half], arguments[half:])
        ]
    return [*told, [Finished("finished", 0, "tool_calls")]]


def calling_custom(*calls: tuple[str, str, str]) -> list[list[Any]]:
    """Return the events of an answer that calls custom tools: (call id, name, input) each."""
    return [
        [event._replace(is_custom=True) if isinstance(event, ToolCallStart) else event for event in piece]
        for piece in calling(*calls)
    ]


def calls(*wanted: tuple[str, dict[str, Any]], words: tuple[str, ...] = ()) -> list[list[Any]]:
    """Return the events of a model that calls functions: (name, arguments) each."""
    told = [(f"call_{n}", name, orjson.dumps(arguments).decode()) for n, (name, arguments) in enumerate(wanted)]
    return calling(*told, words=words)


def token_by_token(name: str, arguments: str, reason: str = "tool_calls", length: int = 3):
    """Return the events of a model that writes one call, `length` characters a token."""
    tokens = [arguments[start : start + length] for start in range(0, len(arguments), length)]
    told = [[ToolArgumentsDelta("tool_arguments", 0, 0, token)] for token in tokens]
    return [[ToolCallStart("tool_call", 0, 0, "call_0", name)], *told, [Finished("finished", 0, reason)]]


def script(world, *answers: list[list[Any]], usage: Usage = USAGE) -> None:
    """Have the engine give these answers, one a request, the last one for ever."""
    left = list(answers)

    def play(request):
        events = left.pop(0) if len(left) > 1 else left[0]
        return Script(pieces(request, events, usage), usage=usage)

    world.chat.script = play


def messages(world, number: int = -1) -> list[dict[str, Any]]:
    return orjson.loads(world.chat.requests[number].body)["messages"]


async def stream_of(world, body: dict[str, Any], path: str = "/v1/responses") -> list[dict[str, Any]]:
    async with world.http() as http:
        answer = await http.post(path, json={"model": MODEL, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return split(answer.content)


def of_type(response: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [item for item in response["output"] if item["type"] == kind]


async def lines_of(world, *bodies: dict[str, Any], batch_id: str | None = None, **overrides: object):
    """Return what the lines of a batch over /v1/responses come to: (status, body) each. Each call is a new batch."""
    batch_id = batch_id or f"batch_{secrets.token_hex(16)}"
    operations = create_operations(world.directory, cache_salts(b"salt"), {}, world.storage(), world.built_ins)
    line_calls = LineCalls(operations.by_path(), ConcurrencyLimiter(8), 10, ignored=operations.ignored)
    answers = []
    for number, body in enumerate(bodies):
        request, caller = BatchRequest(f"r{number}", body), principal(**overrides)
        answer = await line_calls.run(number, request, "/v1/responses", caller, batch_id)
        told = orjson.loads(answer.rendered)["response"]
        answers.append((told["status_code"], told["body"]))
    return answers
