"""A call of one of the service's tools while the model writes it, as clients see it before it is carried out."""

from collections.abc import Callable
from typing import Any, Protocol

from serve_app.operations.responses.events.writer import Item

ToolEvent = tuple[str, dict[str, Any]]
"""An event of a tool's own kind, and its fields; its item and place are filled in later."""


class WrittenCall(Protocol):
    """A call whose item shows what the model writes, as it writes it."""

    @property
    def item(self) -> Item:
        """The item, new, with the status in_progress."""
        ...

    def begin(self) -> list[ToolEvent]:
        """Return the events that follow the one which adds the item."""
        ...

    def take(self, text: str) -> list[ToolEvent]:
        """Return the events for more of the call's arguments, a piece of a text that should be JSON."""
        ...

    def end(self) -> list[ToolEvent]:
        """Put the whole into the item; return the events that end it. The model may have stopped in the middle."""
        ...


Follow = Callable[[str], WrittenCall | None]
"""Returns what shows a new call of a function, None where it is shown only once it is carried out."""


class FieldInWriting:
    """A call of which one field of the item shows what the model writes; keeps `WrittenCall`.

    `event` is the kind of its events without `.delta` and `.done`, `begins` the kind of the event that begins a call.
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
        """Put the whole into the item; return the event that has it."""
        self.item[self._field] = "".join(self._pieces)
        return [(f"{self._event}.done", {self._field: self.item[self._field]})]
