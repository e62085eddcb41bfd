"""The content of one file on its way into the object store and out of it, sealed there."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from deployments.state.encryption import CHUNK_BYTES, SALT_BYTES, AccountKey, DataKey, SealBroken, chunk_span
from deployments.state.objects import ObjectMissing, ObjectStore, ObjectWriter, StoreUnavailable

_CONTENT, _NAME = b"file content", b"file name"
_CHUNKS_PER_READ = 16


class NewFile(NamedTuple):
    """A file about to be written; `key_id` names the API key that has it written."""

    account: str
    key_id: str
    file_id: str


class FileWriter:
    """Seals a file's content on its way into the object store."""

    def __init__(self, new: NewFile, account_key: AccountKey, object_key: str, writer: ObjectWriter) -> None:
        self._new = new
        self._key, self._wrapped = account_key.new_object(new.file_id)
        self._sealer = self._key.new_stream(_CONTENT)
        self._object_key = object_key
        self._writer = writer

    @property
    def num_bytes(self) -> int:
        """Plaintext bytes written so far."""
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
        """Return the row under which the file is to be recorded, once its content has appeared."""
        return {
            "file_id": self._new.file_id,
            "account": self._new.account,
            "key_id": self._new.key_id,
            "purpose": purpose,
            "num_bytes": self.num_bytes,
            "created_at": created_at,
            "expires_at": expires_at,
            "object_key": self._object_key,
            "wrapped_key": self._wrapped,
            "sealed_name": self._key.seal(filename.encode("utf-8", "replace"), _NAME),
        }


async def read_content(
    objects: ObjectStore, row: Mapping[str, Any], key: DataKey, start: int, stop: int
) -> AsyncIterator[bytes]:
    """Yield the content of the file in `row` from `start` up to `stop`, in pieces of a mebibyte or less.

    Raises:
        StoreUnavailable: the object store fails, or what it holds is not what was written there.
    """
    object_key, num_bytes = row["object_key"], row["num_bytes"]
    stop = min(stop, num_bytes)
    try:
        opener = key.open_stream(await objects.read(object_key, 0, SALT_BYTES), _CONTENT, num_bytes)
        for first in range(start // CHUNK_BYTES, -(-stop // CHUNK_BYTES), _CHUNKS_PER_READ):
            numbers = range(first, min(first + _CHUNKS_PER_READ, -(-stop // CHUNK_BYTES)))
            spans = [chunk_span(number, num_bytes) for number in numbers]
            origin = spans[0][0]
            sealed = await objects.read(object_key, origin, spans[-1][1])
            opened = [opener.open(n, sealed[a - origin : b - origin]) for n, (a, b) in zip(numbers, spans, strict=True)]
            piece, offset = b"".join(opened), first * CHUNK_BYTES
            yield piece[max(0, start - offset) : stop - offset]
    except (ObjectMissing, SealBroken) as error:
        raise StoreUnavailable(f"A file's content cannot be read: {type(error).__name__}.") from None


def open_name(row: Mapping[str, Any], key: DataKey) -> str:
    """Return the name of the file in `row`.

    Raises:
        SealBroken: the key is another file's.
    """
    return key.open(row["sealed_name"], _NAME).decode()
