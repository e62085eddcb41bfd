"""The model's output items while they are written, with their ids and seals; `state` opens and closes them."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from deployments.models.contract.events import ToolCallStart
from serve_app.operations.responses.events.writer import EventWriter, Item, new_id

CALLS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "function_call": ("fc", "response.function_call_arguments", "arguments"),
        "custom_tool_call": ("ctc", "response.custom_tool_call_input", "input"),
    }
)
"""By type of a call that the client carries out: the prefix of its id, its events without their ends, and its text."""

MODELS_OWN = ("message", "reasoning", *CALLS)
"""The types of the items that the model writes; all others are of the service's tools."""


class NewItems:
    """Gives items new ids, and seals reasoning with `seal`, if there is one."""

    def __init__(self, seal: Callable[[str], str] | None = None) -> None:
        self._seal = seal

    def new_id(self, prefix: str) -> str:
        """Return the id of the model's next item."""
        return new_id(prefix)

    def seal_reasoning(self, text: str) -> str | None:
        """Return the `encrypted_content` of the next reasoning item, None if it has none."""
        return self._seal(text) if self._seal is not None else None

    def begin_tool(self, item: Item) -> None:
        """Replace a tool's new item by the recorded one, if there is one."""


class RecordedItems(NewItems):
    """Gives items the recorded ids and seals of a response, then new ones.

    `begun` are its items as they began, `sealed` their seals, both in order.
    """

    def __init__(self, begun: Iterable[Item], sealed: Iterable[str], seal: Callable[[str], str] | None = None) -> None:
        super().__init__(seal)
        begun = list(begun)
        self._ids = deque(item["id"] for item in begun if item["type"] in MODELS_OWN)
        self._tools = deque(item for item in begun if item["type"] not in MODELS_OWN)
        self._sealed = deque(sealed)

    def new_id(self, prefix: str) -> str:
        """Return the recorded id of the item, or a new one."""
        return self._ids.popleft() if self._ids else super().new_id(prefix)

    def seal_reasoning(self, text: str) -> str | None:
        """Return the recorded seal of the reasoning, or a new one."""
        return self._sealed.popleft() if self._sealed else super().seal_reasoning(text)

    def begin_tool(self, item: Item) -> None:
        """Replace a tool's new item by the recorded one."""
        if self._tools:
            item.clear()
            item.update(self._tools.popleft())


Status = Literal["completed", "incomplete"]
NewId = Callable[[str], str]
Cite = Callable[[str], list[Item]]
"""Returns the annotations of a complete text."""


class OpenText:
    """A message, with one part.

    Once closed, `cuts` has the lengths of the part's deltas, and how many log probabilities each had.
    """

    def __init__(self, writer: EventWriter, item: Item, output_index: int, cite: Cite) -> None:
        self.item = item
        self.cuts: list[Any] = []
        self._writer = writer
        self._output_index = output_index
        self._cite = cite
        self._place = {"item_id": item["id"], "output_index": output_index, "content_index": 0}
        self._write_delta = writer.deltas("response.output_text.delta", logprobs=True, **self._place)
        self._pieces: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[Any] = []

    def begin(self) -> list[bytes]:
        """Return the events that add the item and its part."""
        return [
            self._writer.write("response.output_item.added", output_index=self._output_index, item=self.item),
            self._writer.write("response.content_part.added", **self._place, part=self._part("")),
        ]

    def delta(self, text: str, logprobs: list[Any] | None = None) -> bytes:
        """Return the event for more text."""
        self._pieces.append(text)
        self._tokens.append(len(logprobs or ()))
        if not logprobs:
            return self._write_delta(text)
        self._logprobs += logprobs
        return self._write_delta(text, [_delta_logprob(token) for token in logprobs])

    def _part(self, text: str) -> Item:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs}

    def close(self, status: Status) -> list[bytes]:
        """Return the events that end the part and the item."""
        text = "".join(self._pieces)
        part = self._part(text)
        done = {"text": text, "logprobs": [_delta_logprob(token) for token in self._logprobs]}
        events = self._annotate(part, text)
        self.item["content"].append(part)
        self.item["status"] = status
        lengths = [len(piece) for piece in self._pieces]
        self.cuts.append([lengths, self._tokens] if self._logprobs else [lengths])
        return [
            *events,
            self._writer.write("response.output_text.done", **self._place, **done),
            self._writer.write("response.content_part.done", **self._place, part=part),
            self._writer.write("response.output_item.done", output_index=self._output_index, item=self.item),
        ]

    def _annotate(self, part: Item, text: str) -> list[bytes]:
        """Add the tools' annotations of a text; return their events."""
        part["annotations"] = self._cite(text)
        return [
            self._writer.write(
                "response.output_text.annotation.added", **self._place, annotation_index=index, annotation=annotation
            )
            for index, annotation in enumerate(part["annotations"])
        ]


class OpenCall:
    """A call of a function or a custom tool that the client runs."""

    def __init__(self, writer: EventWriter, item: Item, output_index: int) -> None:
        self.item = item
        self._writer = writer
        self._output_index = output_index
        self._pieces: list[str] = []
        self._place = {"item_id": item["id"], "output_index": output_index}
        _, self._event, self._field = CALLS[item["type"]]
        self._write_delta = writer.deltas(f"{self._event}.delta", logprobs=False, **self._place)

    @property
    def cuts(self) -> list[Any]:
        """The lengths of the deltas."""
        return [len(piece) for piece in self._pieces]

    def begin(self) -> bytes:
        """Return the event that adds the item."""
        return self._writer.write("response.output_item.added", output_index=self._output_index, item=self.item)

    def delta(self, text: str) -> bytes:
        """Return the event for more of the arguments or the input."""
        self._pieces.append(text)
        return self._write_delta(text)

    def close(self, status: Status) -> list[bytes]:
        """Return the events that end the item."""
        text = "".join(self._pieces)
        self.item |= {self._field: text, "status": status}
        name = {"name": self.item["name"]} if self.item["type"] == "function_call" else {}
        return [
            self._writer.write(f"{self._event}.done", **self._place, **name, **{self._field: text}),
            self._writer.write("response.output_item.done", output_index=self._output_index, item=self.item),
        ]


def message_item(new_id: NewId) -> Item:
    """Return an empty message of the assistant."""
    return {"id": new_id("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": []}


def reasoning_item(new_id: NewId) -> Item:
    """Return an empty reasoning item."""
    return {"id": new_id("rs"), "type": "reasoning", "status": "in_progress", "summary": [], "content": []}


def call_item(new_id: NewId, call: ToolCallStart, name: str, namespace: str | None = None) -> Item:
    """Return a call that begins, without arguments or input."""
    kind = "custom_tool_call" if call.is_custom else "function_call"
    prefix, _, field = CALLS[kind]
    item = {"id": new_id(prefix), "type": kind, "status": "in_progress", "call_id": call.id, "name": name, field: ""}
    return item if namespace is None else {**item, "namespace": namespace}


def _delta_logprob(token: dict[str, Any]) -> dict[str, Any]:
    """Return a token's log probability for an event, without the bytes that the finished part has."""
    top = [{"token": other["token"], "logprob": other["logprob"]} for other in token.get("top_logprobs") or ()]
    return {"token": token["token"], "logprob": token["logprob"], "top_logprobs": top}
