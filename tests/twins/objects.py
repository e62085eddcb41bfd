"""An object store in this process's memory."""

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from deployments.state.objects.store import ObjectInfo, ObjectMissing, StoreFull, StoreUnavailable


class MemoryObjects:
    """An `ObjectStore` over a dict. While `is_away` it fails; beyond `room_bytes` it is full. `num_asked` counts.

    `clock` says when objects are modified. Where it stood still while time passes, what was just written would be old.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.objects: dict[str, bytes] = {}
        self.modified_at: dict[str, float] = {}
        self._clock = clock
        self.is_away = False
        self.room_bytes: int | None = None
        self.num_asked = 0

    @asynccontextmanager
    async def create(self, key: str) -> AsyncIterator["_MemoryWriter"]:
        self._check()
        writer = _MemoryWriter(self)
        yield writer
        await self.put(key, bytes(writer.written))

    async def put(self, key: str, content: bytes) -> None:
        self._check(len(content))
        self.objects[key] = content
        self.modified_at[key] = self._clock()

    async def read(self, key: str, start: int, stop: int) -> bytes:
        self._check()
        if key not in self.objects:
            raise ObjectMissing("There is no such object.")
        return self.objects[key][start:stop]

    async def size(self, key: str) -> int:
        return len(await self.read(key, 0, sys.maxsize))

    async def delete(self, key: str) -> None:
        self._check()
        self.objects.pop(key, None)

    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self._check()
        for key, content in sorted(self.objects.items()):
            if key.startswith(f"{prefix}/"):
                yield ObjectInfo(key, len(content), self.modified_at[key])

    async def drop_unfinished(self, older_than_s: float) -> int:
        return 0

    def _check(self, num_bytes: int = 0) -> None:
        self.num_asked += 1
        if self.is_away:
            raise StoreUnavailable("The object store is switched off.")
        if self.room_bytes is not None and num_bytes + sum(map(len, self.objects.values())) > self.room_bytes:
            raise StoreFull("The object store has no room left.")


class _MemoryWriter:
    def __init__(self, store: MemoryObjects) -> None:
        self.written = bytearray()
        self._store = store

    async def write(self, piece: bytes) -> None:
        self._store._check(len(self.written) + len(piece))
        self.written += piece
