"""A call of a tool that the service runs, and its item from its first event to its last.

`state` opens and closes it; `run` writes the events of the tool into it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from serve_app.operations.responses.events.items import Status
from serve_app.operations.responses.events.writer import EventWriter, Item
from serve_app.schemas.responses.tools import CLIENT_BUILT_INS

ToolEvent = tuple[str, dict[str, Any]]
"""The kind and the fields of a tool's own event; item and index are added later."""


class WrittenCall(Protocol):
    """A call whose item is shown while the model writes it."""

    @property
    def item(self) -> Item:
        """The item, new, with the status in_progress."""

    def begin(self) -> list[ToolEvent]:
        """Return the events after the one that adds the item."""

    def take(self, text: str) -> list[ToolEvent]:
        """Return the events for the next piece of the call's arguments, which should be JSON."""

    def end(self) -> list[ToolEvent]:
        """Complete the item; return the events that end it. The model may have stopped in the middle."""


Follow = Callable[[str], WrittenCall | None]
"""Returns a new call of a function if it is shown while the model writes it, else None."""


class FieldInWriting:
    """A `WrittenCall` that shows the model's text in one field of its item.

    `event` is the kind of its events without `.delta` and `.done`, `begins` the kind of its first event.
    """

    def __init__(self, item: Item, event: str, field: str, begins: str | None = None) -> None:
        self.item = item
        self._event = event
        self._field = field
        self._begins = begins
        self._pieces: list[str] = []

    def begin(self) -> list[ToolEvent]:
        """Return the event that begins the call."""
        return [(self._begins, {})] if self._begins is not None else []

    def take(self, text: str) -> list[ToolEvent]:
        """Return the event for more of the field, if there is more."""
        self._pieces.append(text)
        return [(f"{self._event}.delta", {"delta": text})] if text else []

    def end(self) -> list[ToolEvent]:
        """Set the item's field; return the event with it."""
        self.item[self._field] = "".join(self._pieces)
        return [(f"{self._event}.done", {self._field: self.item[self._field]})]


class OpenTool:
    """An item of one of the service's tools, with events of its own kind.

    `cuts` has the item as it began, then the kind and the fields of each event; deltas in a row are one entry.
    `written` is the call while the model writes it.
    """

    def __init__(self, writer: EventWriter, item: Item, output_index: int, written: WrittenCall | None = None) -> None:
        self.item = item
        self.cuts: list[Any] = [orjson.loads(orjson.dumps(item))]
        self._writer = writer
        self._output_index = output_index
        self._written = written

    def begin(self) -> list[bytes]:
        """Return the event that adds the item, and the first events of the call."""
        added = self._writer.write("response.output_item.added", output_index=self._output_index, item=self.item)
        return [added, *(self._write_all(self._written.begin()) if self._written is not None else ())]

    def write(self, text: str) -> list[bytes]:
        """Return the events for more of the arguments of a call."""
        return self._write_all(self._written.take(text)) if self._written is not None else []

    def end_writing(self) -> list[bytes]:
        """Return the events that end the model's part of a call."""
        written, self._written = self._written, None
        return self._write_all(written.end()) if written is not None else []

    def write_event(self, kind: str, **fields: Any) -> bytes:
        """Return one of the tool's own events, such as `response.web_search_call.searching`."""
        if fields.keys() != {"delta"}:
            self.cuts.append([kind, fields])
        elif isinstance(self.cuts[-1], list) and self.cuts[-1][0] == kind:
            self.cuts[-1][1].append(fields["delta"])
        else:
            self.cuts.append([kind, [fields["delta"]]])
        return self._writer.write(kind, item_id=self.item["id"], output_index=self._output_index, **fields)

    def finish(self, item: Item) -> None:
        """Replace the item with the tool's finished one."""
        self.item.clear()
        self.item.update(item)

    def _write_all(self, events: Sequence[ToolEvent]) -> list[bytes]:
        return [self.write_event(kind, **fields) for kind, fields in events]

    def close(self, status: Status) -> list[bytes]:
        """Return the events that end the item.

        An item in progress becomes failed; incomplete if the model was still writing, or its type has no other word.
        """
        if self.item.get("status") == "in_progress":
            fails = self._written is None and self.item["type"] not in CLIENT_BUILT_INS
            self.item["status"] = "failed" if fails else "incomplete"
        done = self.end_writing()
        return [*done, self._writer.write("response.output_item.done", output_index=self._output_index, item=self.item)]


@dataclass(slots=True)
class ServerCall:
    """A call of one of the service's tools, with `arguments` as the model wrote them.

    `opened` is its item if the call is shown while the model writes it. `output` is the text for the model, once the
    call has been carried out.
    """

    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    opened: OpenTool | None = None
    output: str | None = None

    @property
    def arguments(self) -> str:
        """The JSON text, which may not be valid."""
        return "".join(self.pieces)
