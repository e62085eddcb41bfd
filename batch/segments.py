"""Segments: sealed objects with the output lines of a batch, until they are merged into its output file.

Workers write them and commit them to the ledger; `batch.merge` reads them.
"""

import secrets
from collections import OrderedDict
from collections.abc import Sequence

from batch.calls import Answer
from deployments.state.batches.rows import Entry, Segment, StoredSegment
from deployments.state.disk import DiskReserve
from deployments.state.encryption.sealing import SealBroken
from deployments.state.encryption.vault import Vault
from deployments.state.objects.store import ContentLost, ObjectMissing, ObjectStore

MAX_SEGMENT_BYTES = 4 * 1024 * 1024
_LABEL = b"batch segment"
_MAX_CACHED_BYTES = 64 * 1024 * 1024


class SegmentStore:
    """The segments of all batches."""

    def __init__(self, objects: ObjectStore, vault: Vault, disk: DiskReserve) -> None:
        self._objects = objects
        self._vault = vault
        self._disk = disk

    async def prepare(self, account: str, answers: Sequence[Answer]) -> tuple[Segment, bytes]:
        """Return a segment of these answers, and the sealed content of its object."""
        segment_id = f"segment_{secrets.token_hex(16)}"
        entries, offset = [], 0
        for answer in answers:
            entries.append(Entry(answer.outcome.line, offset, len(answer.rendered), answer.outcome.is_failed))
            offset += len(answer.rendered)
        key, wrapped = (await self._vault.account_key(account)).new_object(segment_id)
        sealed = key.seal(b"".join([answer.rendered for answer in answers]), _LABEL)
        outcomes = [answer.outcome for answer in answers]
        object_key = f"segments/{segment_id}"
        records = [answer.record for answer in answers]
        return Segment(segment_id, object_key, len(sealed), wrapped, entries, outcomes, records), sealed

    async def write(self, segment: Segment, sealed: bytes) -> None:
        """Write a segment's object; writing it again is harmless.

        Raises:
            StoreUnavailable: the object store fails, or is full but for its reserve.
        """
        await self._disk.check()
        await self._objects.put(segment.object_key, sealed)

    async def read(self, account: str, segment: StoredSegment) -> bytes:
        """Return the output lines of a segment.

        Raises:
            StoreUnavailable: the object store fails.
            ContentLost: the object is missing, or is not what was written.
        """
        try:
            sealed = await self._objects.read(segment.object_key, 0, segment.num_bytes)
            account_key = await self._vault.account_key(account)
            return account_key.open_object(segment.segment_id, segment.wrapped_key).open(sealed, _LABEL)
        except (ObjectMissing, SealBroken) as error:
            raise ContentLost(f"A segment cannot be read: {type(error).__name__}.") from None


class SegmentReader:
    """Reads single lines of the segments of one batch, through a cache of the segments read last."""

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
        """Return whether a line of these segments failed."""
        return self._where[line][1].is_failed

    async def line(self, line: int) -> tuple[bytes, bool]:
        """Return the output line of an input line, and whether it failed.

        Raises:
            StoreUnavailable, ContentLost: as `SegmentStore.read` does.
        """
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
