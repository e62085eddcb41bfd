"""One output item of the model while it is written, from its first event to its last; `state` opens and closes it."""

from collections.abc import Callable
from typing import Any, Literal

from serve_app.operations.responses.events.writer import EventWriter, Item

Status = Literal["completed", "incomplete"]
TextKind = Literal["text", "refusal", "reasoning"]
NewId = Callable[[str], str]
Cite = Callable[[str], list[Item]]
"""Returns the annotations of a text that is complete."""

_EVENTS: dict[TextKind, str] = {
    "text": "response.output_text",
    "refusal": "response.refusal",
    "reasoning": "response.reasoning_text",
}
_DONE_FIELD: dict[TextKind, str] = {"text": "text", "refusal": "refusal", "reasoning": "text"}


class OpenText:
    """A message or a reasoning item: content parts, one after the other, each of one kind of text.

    `cuts` holds, for each finished part, the lengths of its deltas and how many tokens each had the probability of.
    """

    def __init__(
        self,
        writer: EventWriter,
        item: Item,
        output_index: int,
        seal_reasoning: Callable[[str], str | None],
        cite: Cite,
    ) -> None:
        self._seal_reasoning = seal_reasoning
        self._cite = cite
        self.item = item
        self._writer = writer
        self._output_index = output_index
        self.cuts: list[Any] = []
        self._kind: TextKind | None = None
        self._pieces: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[Any] = []
        self._write_delta: Callable[..., bytes]

    def begin(self) -> bytes:
        """Return the event that adds the item."""
        return self._writer.write("response.output_item.added", output_index=self._output_index, item=self.item)

    def delta(self, kind: TextKind, text: str, logprobs: list[Any] | None = None) -> list[bytes]:
        """Return the events for more text; where the part open now is of another kind, that one is closed first."""
        events = [] if kind == self._kind else self.open_part(kind)
        self._pieces.append(text)
        self._tokens.append(len(logprobs or ()))
        if not logprobs:
            events.append(self._write_delta(text))
            return events
        self._logprobs += logprobs
        events.append(self._write_delta(text, [_delta_logprob(token) for token in logprobs]))
        return events

    def open_part(self, kind: TextKind) -> list[bytes]:
        """Return the events that begin a part, after those that end the one before."""
        events = self._close_part()
        self._kind, self._pieces, self._tokens, self._logprobs = kind, [], [], []
        place = self._place()
        self._write_delta = self._writer.deltas(f"{_EVENTS[kind]}.delta", logprobs=kind == "text", **place)
        events.append(self._writer.write("response.content_part.added", **place, part=_part(kind, "", [])))
        return events

    def _place(self) -> dict[str, Any]:
        content = self.item["content"]
        return {"item_id": self.item["id"], "output_index": self._output_index, "content_index": len(content)}

    def _close_part(self) -> list[bytes]:
        kind = self._kind
        if kind is None:
            return []
        place, text = self._place(), "".join(self._pieces)
        done: dict[str, Any] = {_DONE_FIELD[kind]: text}
        if kind == "text":
            done["logprobs"] = [_delta_logprob(token) for token in self._logprobs]
        part = _part(kind, text, self._logprobs)
        cited = self._annotate(part, text) if kind == "text" else []
        self.item["content"].append(part)
        lengths = [len(piece) for piece in self._pieces]
        self.cuts.append([lengths, self._tokens] if self._logprobs else [lengths])
        self._kind = None
        return [
            *cited,
            self._writer.write(f"{_EVENTS[kind]}.done", **place, **done),
            self._writer.write("response.content_part.done", **place, part=part),
        ]

    def _annotate(self, part: Item, text: str) -> list[bytes]:
        """Add the annotations that tools have for a text; return their events."""
        part["annotations"] = self._cite(text)
        place = self._place()
        return [
            self._writer.write(
                "response.output_text.annotation.added", **place, annotation_index=index, annotation=annotation
            )
            for index, annotation in enumerate(part["annotations"])
        ]

    def close(self, status: Status) -> list[bytes]:
        """Return the events that end the item."""
        events = self._close_part()
        self.item["status"] = status
        if self.item["type"] == "reasoning":
            sealed = self._seal_reasoning("\n".join(part["text"] for part in self.item["content"]))
            if sealed is not None:
                self.item["encrypted_content"] = sealed
        done = self._writer.write("response.output_item.done", output_index=self._output_index, item=self.item)
        return [*events, done]


class OpenCall:
    """A call of a function that the caller runs."""

    def __init__(self, writer: EventWriter, item: Item, output_index: int) -> None:
        self.item = item
        self._writer = writer
        self._output_index = output_index
        self._pieces: list[str] = []
        self._place = {"item_id": item["id"], "output_index": output_index}
        self._write_delta = writer.deltas("response.function_call_arguments.delta", logprobs=False, **self._place)

    @property
    def cuts(self) -> list[Any]:
        """The lengths of the deltas."""
        return [len(piece) for piece in self._pieces]

    def begin(self) -> bytes:
        """Return the event that adds the item."""
        return self._writer.write("response.output_item.added", output_index=self._output_index, item=self.item)

    def delta(self, text: str) -> bytes:
        """Return the event for more of the arguments."""
        self._pieces.append(text)
        return self._write_delta(text)

    def close(self, status: Status) -> list[bytes]:
        """Return the events that end the item."""
        arguments = "".join(self._pieces)
        self.item |= {"arguments": arguments, "status": status}
        done = {**self._place, "name": self.item["name"], "arguments": arguments}
        return [
            self._writer.write("response.function_call_arguments.done", **done),
            self._writer.write("response.output_item.done", output_index=self._output_index, item=self.item),
        ]


def message_item(new_id: NewId) -> Item:
    """Return an empty message of the assistant."""
    return {"id": new_id("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": []}


def reasoning_item(new_id: NewId) -> Item:
    """Return an empty reasoning item."""
    return {"id": new_id("rs"), "type": "reasoning", "status": "in_progress", "summary": [], "content": []}


def call_item(new_id: NewId, call_id: str, name: str) -> Item:
    """Return a function call without arguments."""
    return {
        "id": new_id("fc"),
        "type": "function_call",
        "status": "in_progress",
        "call_id": call_id,
        "name": name,
        "arguments": "",
    }


def _part(kind: TextKind, text: str, logprobs: list[Any]) -> Item:
    match kind:
        case "text":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
        case "refusal":
            return {"type": "refusal", "refusal": text}
        case "reasoning":
            return {"type": "reasoning_text", "text": text}


def _delta_logprob(token: dict[str, Any]) -> dict[str, Any]:
    """Return a token's log probability as events carry it: without the bytes that the finished part has."""
    top = [{"token": other["token"], "logprob": other["logprob"]} for other in token.get("top_logprobs") or ()]
    return {"token": token["token"], "logprob": token["logprob"], "top_logprobs": top}
