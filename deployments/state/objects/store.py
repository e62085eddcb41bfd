"""The object store: bytes under keys that only this service chooses, in a directory or a bucket.

An object appears whole or not at all. The database knows which objects count: an object without a row is an orphan.
Callers seal the content; this module does not know what an object holds.
"""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url
from typing_extensions import override

from deployments.state.database.queries import id_groups
from deployments.state.objects.config import ResolvedObjectStore

# S3 takes no smaller parts. Each upload holds one in memory, two while one is on its way.
_PART_BYTES = 5 * 1024 * 1024
_FULL = tuple(f"os error {number}" for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class ObjectMissing(LookupError):
    """There is no object under this key."""


class StoreUnavailable(Exception):
    """The object store cannot be reached or fails; a later attempt may succeed."""


class StoreFull(StoreUnavailable):
    """The object store has no room left."""


class ContentLost(StoreUnavailable):
    """The content under a key is missing or not what was written: it is damaged, or its disk is not mounted."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing; `modified_at` is in Unix seconds."""

    key: str
    num_bytes: int
    modified_at: float


class ObjectWriter(Protocol):
    """An object that is being written; raises StoreUnavailable if it cannot be."""

    async def write(self, piece: bytes) -> None:
        """Add to the object."""


class ObjectStore(Protocol):
    """Bytes under keys: `BucketStore`, two as a `PairedStore`, or the twin in tests.

    Every method raises StoreUnavailable if the object store fails, StoreFull if it has no room.
    """

    def create(self, key: str) -> AbstractAsyncContextManager[ObjectWriter]:
        """Open a new object, which appears when the block ends, and does not when it ends with an error."""

    async def put(self, key: str, content: bytes) -> None:
        """Write a small object at once."""

    async def read(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from `start` up to `stop`, fewer where it ends before.

        Raises:
            ObjectMissing: there is no such object.
        """

    async def size(self, key: str) -> int:
        """Return how many bytes an object has.

        Raises:
            ObjectMissing: there is no such object.
        """

    async def delete(self, key: str) -> None:
        """Delete an object, if there is one."""

    def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose keys begin with a folder's name."""

    async def drop_unfinished(self, older_than_s: float) -> int:
        """Remove the drafts of killed writers; return how many."""


class BucketStore(ObjectStore):
    """An object store over obstore: a directory, or a bucket."""

    def __init__(self, config: ResolvedObjectStore) -> None:
        parts = urlsplit(config.url)
        self._directory = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._landmark: Path | None = None
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._store: Any = LocalStore(self._directory)
            return
        options: dict[str, Any] = dict(config.options)
        timeout = timedelta(seconds=config.timeout_s)
        client: dict[str, Any] = {"timeout": timeout, "connect_timeout": min(timeout, timedelta(seconds=5))}
        if options.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        retry: Any = {"max_retries": 4, "retry_timeout": timeout}
        self._store = from_url(config.url, config=options or None, client_options=client, retry_config=retry)

    def expect(self, key: str) -> None:
        """Treat a directory without this object as unavailable from now on.

        An unmounted disk leaves an empty directory, which would accept content and lose it at the next mount.
        """
        if self._directory is not None:
            self._landmark = self._directory / key

    @override
    @asynccontextmanager
    async def create(self, key: str) -> AsyncIterator[ObjectWriter]:
        await self._check_there()
        with _translated():
            writing = obstore.open_writer_async(self._store, key, buffer_size=_PART_BYTES, max_concurrency=1)
            await writing.__aenter__()
        try:
            yield _Writer(writing)
        except BaseException as error:
            await writing.__aexit__(type(error), error, error.__traceback__)
            raise
        with _translated():
            await writing.__aexit__(None, None, None)
        await self._check_there()

    @override
    async def put(self, key: str, content: bytes) -> None:
        await self._check_there()
        with _translated():
            await obstore.put_async(self._store, key, content)
        await self._check_there()

    @override
    async def read(self, key: str, start: int, stop: int) -> bytes:
        try:
            with _translated():
                return bytes(await obstore.get_range_async(self._store, key, start=start, end=stop))
        except ObjectMissing:
            await self._check_there()
            raise

    @override
    async def size(self, key: str) -> int:
        try:
            with _translated():
                return int((await obstore.head_async(self._store, key))["size"])
        except ObjectMissing:
            await self._check_there()
            raise

    @override
    async def delete(self, key: str) -> None:
        try:
            with _translated():
                await obstore.delete_async(self._store, key)
        except ObjectMissing:
            return

    @override
    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        with _translated():
            async for page in obstore.list(self._store, prefix):
                for one in page:
                    yield ObjectInfo(one["path"], one["size"], one["last_modified"].timestamp())

    @override
    async def drop_unfinished(self, older_than_s: float) -> int:
        if self._directory is None:  # In a bucket, lifecycle rules remove them.
            return 0
        return await asyncio.to_thread(_drop_drafts, self._directory, time.time() - older_than_s)

    async def _check_there(self) -> None:
        if self._landmark is None:
            return
        with _translated():
            is_there = await asyncio.to_thread(self._landmark.exists)
        if not is_there:
            raise StoreUnavailable("The directory is not the same as before: its disk may not be mounted.")


class _Writer:
    def __init__(self, writing: Any) -> None:
        self._writing = writing

    async def write(self, piece: bytes) -> None:
        with _translated():
            await self._writing.write(piece)


class _translated:
    """Context manager that translates obstore's errors and drops their text, which holds paths."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise ObjectMissing("There is no such object.") from None
        if isinstance(error, BaseError | OSError):
            if any(mark in str(error) for mark in _FULL):
                raise StoreFull("The object store has no room left.") from None
            raise StoreUnavailable(f"The object store fails: {type(error).__name__}.") from None


def _drop_drafts(directory: Path, before: float) -> int:
    """Remove old drafts. obstore writes a draft beside the object's file, named by the object, # and a number."""
    num_dropped = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if "#" in name and path.stat().st_mtime < before:
                path.unlink(missing_ok=True)
                num_dropped += 1
    return num_dropped


async def delete_orphans(
    objects: ObjectStore, folder: str, before: float, known: Callable[[Sequence[str]], Awaitable[Collection[str]]]
) -> int:
    """Delete the objects of a folder that were written before `before` (Unix seconds) and have no row; return how many.

    `known(keys)` returns the keys that have a row.

    Raises:
        StoreUnavailable: the object store fails.
    """
    old = [one.key async for one in objects.list_objects(folder) if one.modified_at < before]
    num_deleted = 0
    for keys in id_groups(old):
        for key in set(keys) - set(await known(keys)):
            await objects.delete(key)
            num_deleted += 1
    return num_deleted
