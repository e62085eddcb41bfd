"""The operation behind /v1/completions, the older interface that continues a plain text."""

from collections.abc import Sequence
from typing import Any

import orjson

from deployments.models.contract.engine import Usage
from deployments.models.contract.events import Event, Finished, Logprobs, TextDelta
from deployments.models.contract.render import DONE, usage_to_wire
from deployments.operations import Operation
from serve_app.operations.generation import GenerationOperation
from serve_app.schemas.completions import CompletionChunk, CompletionRequest


def parse_piece(piece: bytes) -> list[Event]:
    """Return the events in a piece of an answer, which has server-sent chunks or one JSON body."""
    lines = [line.removeprefix(b"data: ") for line in piece.split(b"\n") if line]
    chunks = [orjson.loads(line) for line in lines if line != b"[DONE]"]
    return [event for chunk in chunks for choice in chunk.get("choices", ()) for event in _events_of(choice)]


def _events_of(choice: dict[str, Any]) -> list[Event]:
    index: int = choice["index"]
    events: list[Event] = []
    if choice.get("text"):
        events.append(TextDelta("text", index, choice["text"]))
    if choice.get("logprobs"):
        events.append(Logprobs("logprobs", index, [choice["logprobs"]]))
    if choice.get("finish_reason"):
        events.append(Finished("finished", index, choice["finish_reason"]))
    return events


class CompletionChunks:
    """Renders a streamed completion of plain text."""

    def __init__(self, completion_id: str, model: str, created: int, *, include_usage: bool) -> None:
        self._envelope = {"id": completion_id, "object": "text_completion", "created": created, "model": model}
        self._include_usage = include_usage

    def text(self, choice: int, text: str) -> bytes:
        """Return the chunk for more text of a choice."""
        return self.events([TextDelta("text", choice, text)])

    def events(self, events: Sequence[Event]) -> bytes:
        """Return the chunks for events."""
        return b"".join(self._chunk([_choice_of(event)], usage=None) for event in events)

    def finish(self, usage: Usage) -> bytes:
        """Return the usage chunk, if it was asked for, and the end of the stream."""
        return (self._chunk([], usage) if self._include_usage else b"") + DONE

    def _chunk(self, choices: list[dict[str, Any]], usage: Usage | None) -> bytes:
        chunk: dict[str, Any] = {**self._envelope, "choices": choices}
        if self._include_usage:
            chunk["usage"] = None if usage is None else usage_to_wire(usage)
        return b"data: " + orjson.dumps(chunk) + b"\n\n"


class CompletionBody:
    """Renders a completion of plain text that is not streamed."""

    def __init__(self, completion_id: str, model: str, created: int) -> None:
        self._envelope = {"id": completion_id, "object": "text_completion", "created": created, "model": model}
        self._choices: dict[int, dict[str, Any]] = {}

    def text(self, choice: int, text: str) -> bytes:
        """Keep more text of a choice; return nothing."""
        return self.events([TextDelta("text", choice, text)])

    def events(self, events: Sequence[Event]) -> bytes:
        """Keep the events for the body; return nothing."""
        for event in events:
            more = _choice_of(event)
            kept = self._choices.setdefault(event.choice, _choice_of(None, event.choice))
            kept["text"] += more["text"]
            kept["logprobs"] = more["logprobs"] or kept["logprobs"]
            kept["finish_reason"] = more["finish_reason"] or kept["finish_reason"]
        return b""

    def finish(self, usage: Usage) -> bytes:
        """Return the body."""
        choices = [choice for _, choice in sorted(self._choices.items())]
        return orjson.dumps({**self._envelope, "choices": choices, "usage": usage_to_wire(usage)})


def _choice_of(event: Event | None, index: int = 0) -> dict[str, Any]:
    return {
        "index": index if event is None else event.choice,
        "text": event.text if isinstance(event, TextDelta) else "",
        "logprobs": event.content[0] if isinstance(event, Logprobs) else None,
        "finish_reason": event.reason if isinstance(event, Finished) else None,
    }


class CompletionOperation(GenerationOperation[CompletionRequest]):
    """Create a completion.

    The older interface for plain text. With `stream`, the text comes as server-sent events.
    """

    name = Operation.COMPLETIONS
    schema = CompletionRequest
    answer = "openai.types.Completion"
    events = CompletionChunk
    _id_prefix = "cmpl-"
    _whole = CompletionBody
    _chunks = CompletionChunks
    _parse = staticmethod(parse_piece)


OPERATION = CompletionOperation
