"""Two object stores with the same content, such as the buckets of two regions.

Reads go to the near store first, and to the far one if the near one fails or does not have the object. Writes wait for
both, or only for the near one (`copies: later`). A missing copy is noted in the database before the object counts as
written: either store can be lost once the copier has caught up, and at any time with `copies: both` while both are up.
After `write_near_only`, objects are written to the near store only. A store that failed is not asked first for a few
seconds, so that requests do not wait for its timeouts.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from typing_extensions import override

from deployments.state.objects.copies import PendingCopies, Side
from deployments.state.objects.store import ObjectInfo, ObjectMissing, ObjectStore, ObjectWriter, StoreUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

_Opened = tuple[Side, AbstractAsyncContextManager[ObjectWriter], ObjectWriter]
_stays_near: ContextVar[bool] = ContextVar("stays_near", default=False)


def write_near_only() -> None:
    """Have this task, and the tasks that it starts, write to the near store only from now on."""
    _stays_near.set(True)


class PairedStore(ObjectStore):
    """An object store over two. Without `pending`, the provider copies from one to the other.

    A deletion that fails at one store is noted and repeated later; a listing has the objects of both, each once. Each
    method raises StoreUnavailable if both stores fail, and DBAPIError if one does and the database is away.
    """

    def __init__(self, near: Side, far: Side, pending: PendingCopies | None, *, waits_for_both: bool = True) -> None:
        self.near = near
        self.far = far
        self.pending = pending
        self._waits_for_both = waits_for_both

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both stores, in the order in which they are asked."""
        return (
            (self.far, self.near) if self.near.is_backing_off and not self.far.is_backing_off else (self.near, self.far)
        )

    @override
    @asynccontextmanager
    async def create(self, key: str) -> AsyncIterator[ObjectWriter]:
        if _stays_near.get():
            async with self.near.store.create(key) as near_writer:
                yield near_writer
            return
        writer = _PairWriter(key)
        first, second = self.sides
        await writer.open(first)
        if (self._waits_for_both and not second.is_backing_off) or not writer.is_open:
            await writer.open(second)
        writer.check()
        try:
            yield writer
            writer.check()
        except BaseException as error:
            await writer.give_up(error)
            raise
        await writer.close()
        writer.check()
        await self._note_lacking(key, writer.written)

    @override
    async def put(self, key: str, content: bytes) -> None:
        if _stays_near.get():
            await self.near.store.put(key, content)
            return
        first, second = self.sides
        if self._waits_for_both and not second.is_backing_off:
            results = await asyncio.gather(*(_attempt(side, side.store.put(key, content)) for side in (first, second)))
        else:
            results = [await _attempt(first, first.store.put(key, content))]
            if results[0].error is not None:
                results.append(await _attempt(second, second.store.put(key, content)))
        _check(results)
        await self._note_lacking(key, [result.side for result in results if result.error is None])

    @override
    async def read(self, key: str, start: int, stop: int) -> bytes:
        return await self._first(lambda store: store.read(key, start, stop))

    async def _first(self, ask: Callable[[ObjectStore], Awaitable[T]]) -> T:
        """Return the answer of the first store that has one."""
        failure: StoreUnavailable | None = None
        for side in self.sides:
            try:
                return await ask(side.store)
            except ObjectMissing:
                continue
            except StoreUnavailable as error:
                side.note_failure(error)
                failure = error
        raise failure or ObjectMissing("There is no such object.")

    @override
    async def size(self, key: str) -> int:
        return await self._first(lambda store: store.size(key))

    @override
    async def delete(self, key: str) -> None:
        first, second = self.sides
        results = [await _attempt(first, first.store.delete(key))]
        if second.is_backing_off:
            _check(results)
            await self._note(second, key, is_deleted=True)
            return
        results.append(await _attempt(second, second.store.delete(key)))
        _check(results)
        for result in results:
            if result.error is not None:
                await self._note(result.side, key, is_deleted=True)

    @override
    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        seen: set[str] = set()
        num_failed = 0
        for side in self.sides:
            try:
                async for one in side.store.list_objects(prefix):
                    if one.key not in seen:
                        seen.add(one.key)
                        yield one
            except StoreUnavailable as error:
                side.note_failure(error)
                num_failed += 1
        if num_failed == len(self.sides):
            raise StoreUnavailable("Neither object store can be listed.")

    @override
    async def drop_unfinished(self, older_than_s: float) -> int:
        results = [await _attempt(side, side.store.drop_unfinished(older_than_s)) for side in self.sides]
        _check(results)
        return sum(result.value or 0 for result in results)

    async def _note_lacking(self, key: str, written: list[Side]) -> None:
        for side in (self.near, self.far):
            if side not in written:
                await self._note(side, key)

    async def _note(self, side: Side, key: str, *, is_deleted: bool = False) -> None:
        if self.pending is not None:
            await self.pending.add(side.name, key, is_deleted=is_deleted)


class _PairWriter:
    """An object that is written to one or both stores. A store that fails on the way is left out."""

    def __init__(self, key: str) -> None:
        self.written: list[Side] = []
        self._key = key
        self._open: list[_Opened] = []
        self._error = StoreUnavailable("Neither object store can be written.")

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    async def open(self, side: Side) -> None:
        opened = side.store.create(self._key)
        try:
            writer = await opened.__aenter__()
        except StoreUnavailable as error:
            self._fail(side, error)
        else:
            self._open.append((side, opened, writer))

    def check(self) -> None:
        """Raise the last error if neither store has the object so far."""
        if not self._open and not self.written:
            raise self._error

    async def write(self, piece: bytes) -> None:
        results = await asyncio.gather(*(self._write(*one, piece) for one in self._open))
        self._open = [one for one in results if one is not None]
        self.check()

    async def _write(
        self, side: Side, opened: AbstractAsyncContextManager[ObjectWriter], writer: ObjectWriter, piece: bytes
    ) -> _Opened | None:
        try:
            await writer.write(piece)
        except StoreUnavailable as error:
            self._fail(side, error)
            await _give_up(opened, error)
            return None
        return side, opened, writer

    async def close(self) -> None:
        await asyncio.gather(*(self._close(side, opened) for side, opened, _ in self._open))
        self._open = []

    async def _close(self, side: Side, opened: AbstractAsyncContextManager[ObjectWriter]) -> None:
        try:
            await opened.__aexit__(None, None, None)
        except StoreUnavailable as error:
            self._fail(side, error)
        else:
            self.written.append(side)

    async def give_up(self, error: BaseException) -> None:
        for _, opened, _ in self._open:
            await _give_up(opened, error)
        self._open = []

    def _fail(self, side: Side, error: StoreUnavailable) -> None:
        side.note_failure(error)
        self._error = error


@dataclass(frozen=True, slots=True)
class _Result:
    side: Side
    value: int | None = None
    error: StoreUnavailable | None = None


async def _attempt(side: Side, work: Awaitable[int | None]) -> _Result:
    try:
        return _Result(side, await work)
    except StoreUnavailable as error:
        side.note_failure(error)
        return _Result(side, error=error)


def _check(results: Sequence[_Result]) -> None:
    errors = [result.error for result in results if result.error is not None]
    if len(errors) == len(results):
        raise errors[-1]


async def _give_up(opened: AbstractAsyncContextManager[ObjectWriter], error: BaseException) -> None:
    """End the block of an object that must not appear; the block raises the same error again."""
    try:
        await opened.__aexit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error and not isinstance(raised, StoreUnavailable):
            raise
