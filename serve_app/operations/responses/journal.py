"""The journal of a response: the answers of its engine and its tools, in order, so that another process can continue.

From the journal and the events that were shown, a process replays the response and continues it, even in the middle of
a text or a call. The engine generates nothing twice. A tool call is in the journal before it is carried out, and is
never repeated: the model reads that its outcome is unknown.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from deployments.models.contract.engine import Engine, EngineRequest, EngineStream, Usage
from deployments.models.contract.errors import EngineDied, Overloaded, RequestRejected
from deployments.models.contract.steps import Written, pack_step, unpack
from serve_app.operations.contract import GeneratedStream
from serve_app.operations.responses.events.items import MODELS_OWN, RecordedItems
from serve_app.operations.responses.events.writer import Item, type_of

Entry = dict[str, Any]


class Journal:
    """Entries in order: those of the past are read first, then new ones are written, if the journal `is_kept`.

    The owner of a kept journal stores the entries that `take_written` returns, then calls `note_kept`.
    """

    def __init__(self, past: Sequence[bytes] = (), *, is_kept: bool = False) -> None:
        self._past = deque(orjson.loads(entry) for entry in past)
        self._is_kept = is_kept
        self._written: list[bytes] = []
        self._num_written = 0
        self._num_kept = 0
        self._has_kept = asyncio.Event()

    def read(self, kind: str) -> Entry | None:
        """Return the next entry of the past if it is of this kind."""
        return self._past.popleft() if self._past and self._past[0]["kind"] == kind else None

    def write(self, kind: str, **fields: Any) -> None:
        """Add an entry. Raises JournalMismatch if the past has another one here."""
        if self._past:
            raise JournalMismatch
        if not self._is_kept:
            return
        self._written.append(orjson.dumps({"kind": kind, **fields}))
        self._num_written += 1

    def end(self, usage: Usage | None, finish_reasons: list[str]) -> None:
        """Add the end of an answer of the engine; one that failed has no reasons."""
        self.write("ended", usage=asdict(usage) if usage is not None else None, finish_reasons=finish_reasons)

    def take_written(self) -> list[bytes]:
        """Return the entries that are new since the last time."""
        written, self._written = self._written, []
        return written

    def note_kept(self, num_entries: int) -> None:
        """Count further entries as stored."""
        self._num_kept += num_entries
        has_kept, self._has_kept = self._has_kept, asyncio.Event()
        has_kept.set()

    async def wait_kept(self) -> None:
        """Wait until every entry is stored."""
        while self._num_kept < self._num_written:
            await self._has_kept.wait()

    def calls(self) -> list[tuple[Item, str, str]]:
        """Return item, function name and output of every finished call in the past."""
        calls: list[tuple[Item, str, str]] = []
        name = ""
        for entry in self._past:
            if entry["kind"] == "call":
                name = entry["name"]
            elif entry["kind"] == "done":
                calls.append((entry["item"], name, entry["output"]))
        return calls


class JournalMismatch(Exception):
    """A replayed response differs from the events that were shown."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """For a full or dead engine: at most `max_tries`, with n x `wait_s` after the n-th."""

    max_tries: int = 6
    wait_s: float = 1.0


class JournaledEngine:
    """An Engine whose answers are in a journal, and continue where one broke off."""

    def __init__(self, engine: Engine, journal: Journal, retries: RetryPolicy) -> None:
        self.card = engine.card
        self._engine = engine
        self._journal = journal
        self._retries = retries

    def run(self, request: EngineRequest) -> EngineStream:
        """Return the answer's stream; nothing happens until it is iterated."""
        return _JournaledStream(self._engine, self._journal, self._retries, request)


class _JournaledStream(GeneratedStream):
    """One answer: the part in the journal, then the rest from the engine.

    A full or dead engine is asked again under the retry policy.
    """

    def __init__(self, engine: Engine, journal: Journal, retries: RetryPolicy, request: EngineRequest) -> None:
        super().__init__()
        self._engine = engine
        self._journal = journal
        self._retries = retries
        self._request = request
        self._written = bytearray()

    async def _generate(self) -> AsyncGenerator[bytes]:
        if refused := self._journal.read("refused"):
            raise RequestRejected(refused["message"], param=refused["param"], code=refused["code"])
        while (past := self._journal.read("piece")) is not None:
            self._written += pack_step(0, past["token_ids"])
            if past["events"]:
                yield orjson.dumps(past["events"])
        if ended := self._journal.read("ended"):
            self.summary.usage = Usage(**ended["usage"]) if ended["usage"] is not None else None
            self.summary.finish_reasons = ended["finish_reasons"]
            return
        num_tries = 0
        while True:
            num_tries += 1
            try:
                async with aclosing(self._ask()) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except Exception as error:
                if isinstance(error, RequestRejected) and not self._written:  # That is in the journal.
                    raise
                if not isinstance(error, Overloaded | EngineDied) or num_tries == self._retries.max_tries:
                    self._journal.end(self.summary.usage, [])
                    raise
            await asyncio.sleep(self._retries.wait_s * num_tries)

    async def _ask(self) -> AsyncGenerator[bytes]:
        """Yield the engine's pieces and write them into the journal; the last one comes once the usage is known."""
        stream = self._engine.run(replace(self._request, written=bytes(self._written)))
        last: tuple[list[int], list[Any]] | None = None
        num_read = 0
        try:
            async for piece in stream:
                notes, num_read = stream.summary.written[num_read:], len(stream.summary.written)
                *earlier, ids = [step.token_ids for step in Written(unpack(notes)).steps] or [[]]
                for before in earlier:  # They have no text.
                    self._write(before, [])
                events = orjson.loads(piece)
                if any(event[0] == "finished" for event in events):
                    last = ids, events
                    continue
                self._write(ids, events)
                yield piece
        except RequestRejected as error:
            if not self._written:
                self._journal.write("refused", message=error.message, param=error.param, code=error.code)
            raise
        finally:
            await stream.aclose()
            self.summary = stream.summary
        if last is not None:
            self._write(*last)
        self._journal.end(self.summary.usage, self.summary.finish_reasons)
        if last is not None:
            yield orjson.dumps(last[1])

    def _write(self, token_ids: list[int], events: list[Any]) -> None:
        self._written += pack_step(0, token_ids)
        self._journal.write("piece", token_ids=token_ids, events=events)


class EmittedEvents:
    """The events of a response that were shown already, which a replay leaves out."""

    def __init__(self, events: Sequence[bytes] = ()) -> None:
        self._types = deque(map(type_of, events))
        self._begun = _items_of(events, b"response.output_item.added")
        ended = _items_of(events, b"response.output_item.done")
        self._sealed = [item["encrypted_content"] for item in ended if "encrypted_content" in item]

    @property
    def has_items(self) -> bool:
        """Whether an item of the model was shown."""
        return any(item["type"] in MODELS_OWN for item in self._begun)

    def items(self, seal: Callable[[str], str] | None = None) -> RecordedItems:
        """Return the ids and seals of the items that were shown, followed by new ones."""
        return RecordedItems(self._begun, self._sealed, seal)

    def leave_out(self, events: list[bytes]) -> list[bytes]:
        """Return the next events that were not shown. Raises JournalMismatch if other events were shown."""
        if not self._types:
            return events
        num_shown = min(len(events), len(self._types))
        if [self._types.popleft() for _ in range(num_shown)] != list(map(type_of, events[:num_shown])):
            raise JournalMismatch
        return events[num_shown:]


def _items_of(events: Sequence[bytes], kind: bytes) -> list[Item]:
    return [orjson.loads(event)["item"] for event in events if type_of(event) == kind]
