"""Writes and reads the content of one file in the object store, where it is sealed."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from deployments.state.encryption.sealing import (
    CHUNK_BYTES,
    SALT_BYTES,
    AccountKey,
    DataKey,
    SealBroken,
    StreamOpener,
    chunk_span,
)
from deployments.state.objects.store import ContentLost, ObjectMissing, ObjectStore, ObjectWriter

_CONTENT, _NAME = b"file content", b"file name"
_CHUNKS_PER_WINDOW = 16
_WINDOW_BYTES = _CHUNKS_PER_WINDOW * CHUNK_BYTES


class NewFile(NamedTuple):
    """A file to be written; `key_id` is the API key that writes it."""

    account: str
    key_id: str
    file_id: str


class FileWriter:
    """Seals a file's content on its way into the object store. The file's row stores `object_key` and `wrapped_key`."""

    def __init__(self, new: NewFile, account_key: AccountKey, object_key: str, writer: ObjectWriter) -> None:
        self.file_id = new.file_id
        self.object_key = object_key
        self._new = new
        self._key, self.wrapped_key = account_key.new_object(new.file_id)
        self._sealer = self._key.new_stream(_CONTENT)
        self._writer = writer

    @property
    def num_bytes(self) -> int:
        """The plaintext bytes written so far."""
        return self._sealer.num_bytes

    async def write(self, piece: bytes) -> None:
        """Add to the file.

        Raises:
            StoreUnavailable: the object store fails, or is full.
        """
        sealed = self._sealer.update(piece)
        if sealed:
            await self._writer.write(sealed)

    async def finish(self) -> None:
        """Write the end."""
        await self._writer.write(self._sealer.finish())

    def row(self, *, purpose: str, filename: str, created_at: float, expires_at: float) -> dict[str, Any]:
        """Return the file's row, to record once the content has appeared."""
        return self._new._asdict() | {
            "purpose": purpose,
            "num_bytes": self.num_bytes,
            "created_at": created_at,
            "expires_at": expires_at,
            "object_key": self.object_key,
            "wrapped_key": self.wrapped_key,
            "sealed_name": self._key.seal(filename.encode("utf-8", "replace"), _NAME),
        }


class ContentReader:
    """Reads the content of one stored file. Keeps the last two mebibytes for the reads that follow."""

    def __init__(self, objects: ObjectStore, row: Mapping[str, Any], key: DataKey) -> None:
        self.num_bytes: int = row["num_bytes"]
        self._objects = objects
        self._object_key: str = row["object_key"]
        self._key = key
        self._opener: StreamOpener | None = None
        self._windows: dict[int, bytes] = {}
        self._loading: dict[int, asyncio.Task[bytes]] = {}

    async def read(self, start: int, stop: int) -> bytes:
        """Return the content from `start` up to `stop`.

        Raises:
            StoreUnavailable: the object store fails.
            ContentLost: the content is missing or damaged.
        """
        return b"".join([piece async for piece in self.pieces(start, stop)])

    async def pieces(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """Yield the content from `start` up to `stop`, in pieces of a mebibyte or less; raises as `read` does."""
        stop = min(stop, self.num_bytes)
        while start < stop:
            number, offset = divmod(start, _WINDOW_BYTES)
            window = self._windows.get(number) or await self._load_once(number)
            piece = window[offset : offset + stop - start]
            start += len(piece)
            yield piece

    async def _load_once(self, number: int) -> bytes:
        """Return a window that is not kept; readers at the same time, like lines of a batch, share one load."""
        loading = self._loading.get(number)
        if loading is None:
            loading = self._loading[number] = asyncio.create_task(self._load(number))
            loading.add_done_callback(lambda _: self._loading.pop(number))
        return await asyncio.shield(loading)

    async def _load(self, number: int) -> bytes:
        try:
            window = await self._open(number)
        except (ObjectMissing, SealBroken) as error:
            raise ContentLost(f"A file's content cannot be read: {type(error).__name__}.") from None
        if len(self._windows) > 1:
            del self._windows[next(iter(self._windows))]
        self._windows[number] = window
        return window

    async def _open(self, number: int) -> bytes:
        if self._opener is None:
            salt = await self._objects.read(self._object_key, 0, SALT_BYTES)
            self._opener = self._key.open_stream(salt, _CONTENT, self.num_bytes)
        opener = self._opener
        first = number * _CHUNKS_PER_WINDOW
        numbers = range(first, min(first + _CHUNKS_PER_WINDOW, opener.num_chunks))
        spans = [chunk_span(each, self.num_bytes) for each in numbers]
        origin = spans[0][0]
        sealed = await self._objects.read(self._object_key, origin, spans[-1][1])
        sealed_chunks = [sealed[start - origin : stop - origin] for start, stop in spans]
        return b"".join(map(opener.open, numbers, sealed_chunks))


def open_name(row: Mapping[str, Any], key: DataKey) -> str:
    """Return the name of the file in `row`."""
    return key.open(row["sealed_name"], _NAME).decode()
