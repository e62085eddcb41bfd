"""A reasoning item while it is written: its text, and the summary that takes the text's place for the client."""

from collections.abc import Callable
from typing import Any

from serve_app.operations.responses.events.items import Status
from serve_app.operations.responses.events.writer import EventWriter, Item

_TEXT, _SUMMARY = "response.reasoning_text", "response.reasoning_summary_text"


class OpenReasoning:
    """A reasoning item, with one part of text and any number of parts of a summary.

    Without `shows_text` the client gets the text only in the seal. Once closed, `cuts` has the lengths of the text's
    deltas and, if there is a summary, for each of its parts how many of those came before it, and the lengths of its
    own.
    """

    def __init__(
        self,
        writer: EventWriter,
        item: Item,
        output_index: int,
        seal: Callable[[str], str | None],
        *,
        shows_text: bool = True,
    ) -> None:
        self.item = item
        self._writer = writer
        self._seal = seal
        self._shows_text = shows_text
        self._output_index = output_index
        self._place = {"item_id": item["id"], "output_index": output_index}
        self._write_delta = writer.deltas(f"{_TEXT}.delta", logprobs=False, **self._place, content_index=0)
        self._pieces: list[str] = []
        self._parts: list[tuple[int, list[str]]] = []
        self._is_summarizing = False

    @property
    def cuts(self) -> list[Any]:
        """How the text and the summary were chunked."""
        lengths = [len(piece) for piece in self._pieces]
        parts = [[num_before, [len(piece) for piece in pieces]] for num_before, pieces in self._parts]
        return [[lengths, parts] if parts else [lengths]]

    def begin(self) -> list[bytes]:
        """Return the events that add the item and its text."""
        events = [self._writer.write("response.output_item.added", output_index=self._output_index, item=self.item)]
        if self._shows_text:
            part = {"type": "reasoning_text", "text": ""}
            events.append(self._writer.write("response.content_part.added", **self._place, content_index=0, part=part))
        return events

    def delta(self, text: str) -> list[bytes]:
        """Return the event for more of the text."""
        self._pieces.append(text)
        return [self._write_delta(text)] if self._shows_text else []

    def summarize(self, text: str) -> list[bytes]:
        """Return the events for more of the summary, in a new part unless one is open."""
        events = []
        if not self._is_summarizing:
            self._is_summarizing = True
            self._parts.append((len(self._pieces), []))
            events.append(self._write_part("added", ""))
        self._parts[-1][1].append(text)
        return [*events, self._writer.write(f"{_SUMMARY}.delta", **self._part_place(), delta=text)]

    def end_part(self) -> list[bytes]:
        """Return the events that end the open part of the summary, if there is one."""
        if not self._is_summarizing:
            return []
        self._is_summarizing = False
        text = "".join(self._parts[-1][1])
        self.item["summary"].append({"type": "summary_text", "text": text})
        return [self._writer.write(f"{_SUMMARY}.done", **self._part_place(), text=text), self._write_part("done", text)]

    def _write_part(self, kind: str, text: str) -> bytes:
        part = {"type": "summary_text", "text": text}
        return self._writer.write(f"response.reasoning_summary_part.{kind}", **self._part_place(), part=part)

    def _part_place(self) -> Item:
        return {**self._place, "summary_index": len(self._parts) - 1}

    def close(self, status: Status) -> list[bytes]:
        """Return the events that end the parts and the item."""
        events, text = self.end_part(), "".join(self._pieces)
        if (sealed := self._seal(text)) is not None:
            self.item["encrypted_content"] = sealed
        if self._shows_text:
            part = {"type": "reasoning_text", "text": text}
            self.item["content"].append(part)
            place = {**self._place, "content_index": 0}
            events.append(self._writer.write(f"{_TEXT}.done", **place, text=text))
            events.append(self._writer.write("response.content_part.done", **place, part=part))
        self.item["status"] = status
        done = self._writer.write("response.output_item.done", output_index=self._output_index, item=self.item)
        return [*events, done]
