"""Writes the events of a response: JSON texts that begin with their type, with consecutive numbers."""

import secrets
from collections.abc import Callable
from typing import Any, Final

import orjson

from deployments.models.contract.engine import Usage

DONE: Final = b"data: [DONE]\n\n"
"""The end of a stream of server-sent events, after the terminal event."""

_TYPE_AT = len(b'{"type":"')

Item = dict[str, Any]


def new_id(prefix: str) -> str:
    """Return an id that cannot be guessed: 128 random bits after the prefix."""
    return f"{prefix}_{secrets.token_hex(16)}"


def response_id_of(request_id: str) -> str:
    """Return the id of the response to a request, the same for every try."""
    return f"resp_{request_id.removeprefix('req_')}"


def request_id_of(response_id: str) -> str:
    """Return the id of the request that a response answers."""
    return f"req_{response_id.removeprefix('resp_')}"


def type_of(event: bytes) -> bytes:
    """Return the type of a written event."""
    return event[_TYPE_AT : event.index(b'"', _TYPE_AT)]


def frame(event: bytes) -> bytes:
    """Return an event as one server-sent event."""
    return b"".join((b"event: ", type_of(event), b"\ndata: ", event, b"\n\n"))


class EventWriter:
    """Numbers events from `number`, without a gap."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def write(self, kind: str, **fields: Any) -> bytes:
        """Return the next event, with its fields in the order given."""
        number = self.number
        self.number += 1
        return orjson.dumps({"type": kind, "sequence_number": number, **fields})

    def response(self, kind: str, response: Item) -> bytes:
        """Return an event with the response object."""
        return self.write(f"response.{kind}", response=response)

    def deltas(self, kind: str, *, logprobs: bool, **place: Any) -> Callable[..., bytes]:
        """Return a function from text to delta events of one kind and place.

        It runs for every token, so the constant parts are rendered once.
        """
        head = b'{"type":"' + kind.encode() + b'","sequence_number":'
        where = b"," + orjson.dumps(place)[1:-1] + b',"delta":'
        tail = b',"logprobs":[]}' if logprobs else b"}"

        def write(text: str, tokens: list[Any] | None = None) -> bytes:
            number = self.number
            self.number += 1
            end = tail if not tokens else b',"logprobs":' + orjson.dumps(tokens) + b"}"
            return b"".join((head, str(number).encode(), where, orjson.dumps(text), end))

        return write


def usage_to_wire(usage: Usage) -> dict[str, Any]:
    """Return a response's `usage` object."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def usage_from_wire(usage: dict[str, Any]) -> Usage:
    """Return the tokens in a response's `usage` object."""
    return Usage(
        prompt_tokens=usage["input_tokens"],
        completion_tokens=usage["output_tokens"],
        cached_tokens=usage["input_tokens_details"]["cached_tokens"],
        reasoning_tokens=usage["output_tokens_details"]["reasoning_tokens"],
    )
