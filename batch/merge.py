"""The end of a batch: its output file, with a line for each line of the input and in that order, and its error file.

Where the object store has lost answers, the lines say so; where it has lost the input, the names of lines that were not
run are lost with it, and the files hold those that were.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from batch.lines import read_custom_id, render_not_run
from batch.segments import SegmentReader
from batch.stores import Stores
from batch.validation import LineIndex
from deployments.state.batches.ledger import BatchState
from deployments.state.batches.rows import Batch
from deployments.state.files.content import ContentReader, FileWriter, NewFile
from deployments.state.files.store import FileNotFound
from deployments.state.objects.store import ContentLost

PURPOSE = "batch_output"
_WRITE_BYTES = 256 * 1024
_EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
_CANCELLED = ("batch_cancelled", "This request was not executed because the batch was cancelled.")
_ANSWER_LOST = ("answer_lost", "This request was executed, but its answer was lost in storage.")


class Without(IntEnum):
    """What the files of a batch are written without where it is lost; each goes with those before it."""

    NOTHING = 0
    NAMES = 1
    ANSWERS = 2


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows of a batch's files, whose content has appeared but does not count yet; None for a file without lines.

    `num_lost` is how many lines were completed whose answers are lost.
    """

    output: dict[str, Any] | None
    errors: dict[str, Any] | None
    num_lost: int = 0


class _Buffered:
    """A file that is written in larger pieces."""

    def __init__(self, file: FileWriter) -> None:
        self.file = file
        self._kept = bytearray()

    async def write(self, line: bytes) -> None:
        self._kept += line
        if len(self._kept) >= _WRITE_BYTES:
            await self.flush()

    async def flush(self) -> None:
        kept, self._kept = bytes(self._kept), bytearray()
        await self.file.write(kept)


async def merge(
    stores: Stores,
    batch: Batch,
    state: BatchState,
    index: LineIndex | None,
    lifetime_s: float,
    without: Without = Without.NOTHING,
) -> Merged:
    """Write the files of a batch whose outcomes are sealed. Nothing of it counts until `BatchWork.finish`.

    Without an `index` the input is lost. What else is lost stops it, unless it is to do without.

    Raises:
        StoreUnavailable: the object store fails, or is full.
        ContentLost: what it should hold is not there.
    """
    if not state.num_total:
        return Merged(None, None)
    lines = _Lines(stores, batch, state, index, without)
    await lines.open()
    made: list[_Buffered] = []
    try:
        async with AsyncExitStack() as stack:
            made.append(await _create(stack, stores, batch))
            if state.num_completed < state.num_total or without:
                made.append(await _create(stack, stores, batch))
            output, *errors = made
            async for line, is_failed in lines.rendered():
                await output.write(line)
                for file in errors if is_failed else ():
                    await file.write(line)
            for file in made:
                await file.flush()
    except BaseException:
        for file in made:  # One may have appeared before the other failed, and would fill the disk that is full.
            await stores.files.drop_object(file.file.object_key)
        raise
    now = stores.files.clock()
    times = {"created_at": now, "expires_at": now + lifetime_s}
    rows: dict[str, dict[str, Any]] = {}
    for file, name in zip(made, ("output", "error"), strict=False):
        if file.file.num_bytes:
            rows[name] = file.file.row(purpose=PURPOSE, filename=f"{batch.batch_id}_{name}.jsonl", **times)
        else:
            await stores.files.drop_object(file.file.object_key)
    return Merged(rows.get("output"), rows.get("error"), lines.num_lost)


async def _create(stack: AsyncExitStack, stores: Stores, batch: Batch) -> _Buffered:
    new = NewFile(batch.account, batch.principal.key_id, f"file_output_{secrets.token_hex(16)}")
    return _Buffered(await stack.enter_async_context(stores.files.create(new)))


class _Lines:
    """The output lines of a batch, in input order."""

    def __init__(
        self, stores: Stores, batch: Batch, state: BatchState, index: LineIndex | None, without: Without
    ) -> None:
        self.num_lost = 0
        self._stores = stores
        self._batch = batch
        self._state = state
        self._index = index
        self._without = without
        self._input: ContentReader | None = None

    async def open(self) -> None:
        """Find out what is done."""
        segments = await self._stores.work.segments(self._batch.batch_id)
        self._done = SegmentReader(self._stores.segments, self._batch.account, segments)

    async def rendered(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield each line, and whether it failed; those that were not run say why."""
        why = _CANCELLED if self._state.status == "cancelling" else _EXPIRED
        for number in range(self._state.num_total):
            is_done = number in self._done
            answer = await self._answer(number) if is_done else None
            if answer is not None:
                yield answer
                continue
            custom_id = await self._custom_id(number)
            if custom_id is not None:
                yield render_not_run(custom_id, *(_ANSWER_LOST if is_done else why)), True

    async def _answer(self, number: int) -> tuple[bytes, bool] | None:
        """Return the line of one that is done, and whether it failed; None where it is lost."""
        try:
            return await self._done.line(number)
        except ContentLost:
            if self._without < Without.ANSWERS:
                raise
            self.num_lost += not self._done.has_failed(number)
            return None

    async def _custom_id(self, number: int) -> str | None:
        """Return what the client calls a line; None where the input is lost."""
        if self._index is None:
            return None
        try:
            if self._input is None:
                account, file_id = self._batch.account, self._batch.input_file_id
                file = await self._stores.files.find(account, file_id, even_expired=True)
                self._input = await self._stores.files.open(file)
            place = self._index.place(number)
            return read_custom_id(await self._input.read(place.offset, place.offset + place.length))
        except (ContentLost, FileNotFound):
            if self._without < Without.NAMES:
                raise
            return None
