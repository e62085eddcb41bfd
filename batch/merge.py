"""Writes the output file of a batch, with a line for each line of the input and in that order, and its error file.

`BatchRun` calls `merge` once the outcomes are sealed. A line becomes an error if the object store has lost its answer.
If the input is lost, lines that did not run are left out, since their `custom_id` is lost too.
"""

import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from batch.lines import read_custom_id, render_not_run
from batch.stores import SegmentStore, Stores
from deployments.state.batches.ledger import BatchState
from deployments.state.batches.rows import Batch, StoredSegment
from deployments.state.disk import DiskReserve
from deployments.state.files.content import ContentReader, FileWriter, NewFile
from deployments.state.files.store import FileNotFound
from deployments.state.objects.store import ContentLost
from serve_app.validation.batch_lines import LineIndex

PURPOSE = "batch_output"
_WRITE_BYTES = 256 * 1024
_MAX_CACHED_BYTES = 64 * 1024 * 1024
_RESERVE_PART = 0.5
"""An output may use half of the disk's reserve, since its segments are deleted once it is written."""
_EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
_CANCELLED = ("batch_cancelled", "This request was not executed because the batch was cancelled.")
_ANSWER_LOST = ("answer_lost", "This request was executed, but its answer was lost in storage.")


class AcceptedLoss(IntEnum):
    """The losses that the files of a batch may have; each value includes those before it."""

    NONE = 0
    CUSTOM_IDS = 1
    ANSWERS = 2


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows of a batch's files, not yet in the database; None for a file without lines.

    `num_lost` counts completed lines whose answers are lost.
    """

    output: dict[str, Any] | None
    errors: dict[str, Any] | None
    num_lost: int = 0


class _BufferedFile:
    """Writes lines to a file in larger pieces."""

    def __init__(self, file: FileWriter, disk: DiskReserve) -> None:
        self.file = file
        self._disk = disk
        self._kept = bytearray()

    async def write(self, line: bytes) -> None:
        self._kept += line
        if len(self._kept) >= _WRITE_BYTES:
            await self.flush()

    async def flush(self) -> None:
        kept, self._kept = bytes(self._kept), bytearray()
        await self._disk.check(_RESERVE_PART)
        await self.file.write(kept)


async def merge(
    stores: Stores,
    batch: Batch,
    state: BatchState,
    index: LineIndex | None,
    lifetime_s: float,
    accepted: AcceptedLoss = AcceptedLoss.NONE,
) -> Merged:
    """Write the files of a batch whose outcomes are sealed; they do not count until `BatchWork.finish`.

    `index` is None if the input is lost.

    Raises:
        StoreUnavailable: the object store fails, or is full but for a part of its reserve.
        ContentLost: content is lost that is not in `accepted`.
        FileNotFound: the input file is gone, and CUSTOM_IDS are not in `accepted`.
    """
    if not state.num_total:
        return Merged(None, None)
    done = _SegmentReader(stores.segments, batch.account, await stores.work.segments(batch.batch_id))
    lines = _OutputLines(stores, batch, state, index, accepted, done)
    written: list[_BufferedFile] = []
    try:
        async with AsyncExitStack() as stack:
            written.append(await _create(stack, stores, batch))
            if state.num_completed < state.num_total or accepted:
                written.append(await _create(stack, stores, batch))
            output, *errors = written
            async for line, is_failed in lines.rendered():
                await output.write(line)
                for file in errors if is_failed else ():
                    await file.write(line)
            for file in written:
                await file.flush()
    except BaseException:
        for file in written:  # A finished file would keep a full disk full.
            await stores.files.drop_object(file.file.object_key)
        raise
    return Merged(*await _rows(stores, batch, written, lifetime_s), lines.num_lost)


async def _rows(
    stores: Stores, batch: Batch, written: list[_BufferedFile], lifetime_s: float
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the rows of the output file and the error file; delete the object of an empty file."""
    now = stores.files.clock()
    times = {"created_at": now, "expires_at": now + lifetime_s}
    rows: dict[str, dict[str, Any]] = {}
    for file, name in zip(written, ("output", "error"), strict=False):
        if file.file.num_bytes:
            rows[name] = file.file.row(purpose=PURPOSE, filename=f"{batch.batch_id}_{name}.jsonl", **times)
        else:
            await stores.files.drop_object(file.file.object_key)
    return rows.get("output"), rows.get("error")


async def _create(stack: AsyncExitStack, stores: Stores, batch: Batch) -> _BufferedFile:
    new = NewFile(batch.account, batch.principal.key_id, f"file_output_{secrets.token_hex(16)}")
    return _BufferedFile(await stack.enter_async_context(stores.files.create(new)), stores.disk)


class _SegmentReader:
    """Reads single lines of a batch's segments, and caches the segments that it read last."""

    def __init__(self, store: SegmentStore, account: str, segments: Sequence[StoredSegment]) -> None:
        self._store = store
        self._account = account
        self._segments = segments
        self._where = {
            entry.line: (number, entry) for number, segment in enumerate(segments) for entry in segment.entries
        }
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached_bytes = 0

    def __contains__(self, line: int) -> bool:
        return line in self._where

    def has_failed(self, line: int) -> bool:
        return self._where[line][1].is_failed

    async def line(self, line: int) -> tuple[bytes, bool]:
        """Return the output line of an input line, and whether it failed; raises what `SegmentStore.read` does."""
        number, entry = self._where[line]
        content = self._cache.get(number)
        if content is None:
            content = self._cache[number] = await self._store.read(self._account, self._segments[number])
            self._cached_bytes += len(content)
            while self._cached_bytes > _MAX_CACHED_BYTES and len(self._cache) > 1:
                _, dropped = self._cache.popitem(last=False)
                self._cached_bytes -= len(dropped)
        else:
            self._cache.move_to_end(number)
        return content[entry.offset : entry.offset + entry.length], entry.is_failed


class _OutputLines:
    """The output lines of a batch, in input order."""

    def __init__(
        self,
        stores: Stores,
        batch: Batch,
        state: BatchState,
        index: LineIndex | None,
        accepted: AcceptedLoss,
        done: _SegmentReader,
    ) -> None:
        self.num_lost = 0
        self._stores = stores
        self._batch = batch
        self._state = state
        self._index = index
        self._accepted = accepted
        self._done = done
        self._input: ContentReader | None = None

    async def rendered(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield each line, and whether it failed; a line that did not run has an error with the reason."""
        reason = _CANCELLED if self._state.status == "cancelling" else _EXPIRED
        for number in range(self._state.num_total):
            is_done = number in self._done
            answer = await self._answer(number) if is_done else None
            if answer is not None:
                yield answer
                continue
            custom_id = await self._custom_id(number)
            if custom_id is not None:
                yield render_not_run(custom_id, *(_ANSWER_LOST if is_done else reason)), True

    async def _answer(self, number: int) -> tuple[bytes, bool] | None:
        """Return the output line of a done line, and whether it failed; None if it is lost."""
        try:
            return await self._done.line(number)
        except ContentLost:
            if self._accepted < AcceptedLoss.ANSWERS:
                raise
            self.num_lost += not self._done.has_failed(number)
            return None

    async def _custom_id(self, number: int) -> str | None:
        """Return the custom_id of a line; None if the input is lost."""
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
            if self._accepted < AcceptedLoss.CUSTOM_IDS:
                raise
            return None
