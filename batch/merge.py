"""The end of a batch: its output file, with a line for each line of the input and in that order, and its error file."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from batch.lines import read_custom_id, render_not_run
from batch.segments import SegmentReader
from batch.stores import Stores
from batch.validation import LineIndex
from deployments.state.batch_ledger import BatchState
from deployments.state.batch_rows import Batch
from deployments.state.file_content import ContentReader, FileWriter, NewFile

PURPOSE = "batch_output"
_WRITE_BYTES = 256 * 1024
_EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
_CANCELLED = ("batch_cancelled", "This request was not executed because the batch was cancelled.")


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows of a batch's files, whose content has appeared but does not count yet; None for a file without lines."""

    output: dict[str, Any] | None
    errors: dict[str, Any] | None


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


async def merge(stores: Stores, batch: Batch, state: BatchState, index: LineIndex, lifetime_s: float) -> Merged:
    """Write the files of a batch whose outcomes are sealed. Nothing of it counts until `BatchWork.finish`.

    Raises:
        StoreUnavailable: the object store fails, or is full.
    """
    if not state.num_total:
        return Merged(None, None)
    segments = await stores.work.segments(batch.batch_id)
    done = SegmentReader(stores.segments, batch.account, segments)
    has_failures = state.num_completed < state.num_total
    async with AsyncExitStack() as stack:
        output = await _create(stack, stores, batch)
        errors = await _create(stack, stores, batch) if has_failures else None
        async for line, is_failed in _lines(stores, batch, state, index, done):
            await output.write(line)
            if is_failed and errors is not None:
                await errors.write(line)
        for file in (output, errors):
            if file is not None:
                await file.flush()
    now = stores.files.clock()
    times = {"created_at": now, "expires_at": now + lifetime_s}
    name = batch.batch_id
    return Merged(
        output.file.row(purpose=PURPOSE, filename=f"{name}_output.jsonl", **times),
        None if errors is None else errors.file.row(purpose=PURPOSE, filename=f"{name}_error.jsonl", **times),
    )


async def _create(stack: AsyncExitStack, stores: Stores, batch: Batch) -> _Buffered:
    new = NewFile(batch.account, batch.principal.key_id, f"file_output_{secrets.token_hex(16)}")
    return _Buffered(await stack.enter_async_context(stores.files.create(new)))


async def _lines(
    stores: Stores, batch: Batch, state: BatchState, index: LineIndex, done: SegmentReader
) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield the output lines in input order, and whether each failed; those that were not run say why."""
    why = _CANCELLED if state.status == "cancelling" else _EXPIRED
    reader: ContentReader | None = None
    for number in range(state.num_total):
        if number in done:
            yield await done.line(number)
            continue
        if reader is None:
            account, file_id = batch.account, batch.input_file_id
            reader = await stores.files.open(await stores.files.find(account, file_id, even_expired=True))
        place = index.place(number)
        content = await reader.read(place.offset, place.offset + place.length)
        yield render_not_run(read_custom_id(content), *why), True
