"""The stores that every batch process opens, and the retry policy for their outages.

Segments are sealed objects with the output lines of a batch. Workers write them and commit them to the ledger;
`batch.merge` reads them into the output file.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from sqlalchemy.exc import DBAPIError

from batch.calls import Answer
from deployments.state.batches.rows import Entry, Segment, StoredSegment
from deployments.state.batches.store import BatchStore
from deployments.state.batches.work import BatchWork
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database, connect, may_pass
from deployments.state.disk import DiskReserve, disk_reserve_of
from deployments.state.encryption.sealing import SealBroken
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore
from deployments.state.objects.marker import open_objects
from deployments.state.objects.store import ContentLost, ObjectMissing, ObjectStore, StoreUnavailable
from deployments.waiting import worth_logging

logger = logging.getLogger(__name__)
S = TypeVar("S")
T = TypeVar("T")
LostAfter = float | None | Callable[[], Awaitable[float | None]]
"""Seconds, None for the default, or a function that is called after each try and returns one of them."""

MAX_SEGMENT_BYTES = 4 * 1024 * 1024
_SEGMENT = b"batch segment"
_LOST_AFTER_S = 900.0
"""Until then, an operator may mount the disk that content is missing from."""
_FIRST_WAIT_S = 0.2
_MAX_WAIT_S = 5.0
_MAX_DOUBLINGS = 10  # Keeps 2**n small; the wait reaches its bound long before.


class SegmentStore:
    """The segments of all batches, as objects."""

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
        sealed = key.seal(b"".join([answer.rendered for answer in answers]), _SEGMENT)
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
            return account_key.open_object(segment.segment_id, segment.wrapped_key).open(sealed, _SEGMENT)
        except (ObjectMissing, SealBroken) as error:
            raise ContentLost(f"A segment cannot be read: {type(error).__name__}.") from None


@dataclass(frozen=True)
class Stores:
    """The stores of one process that works on batches."""

    database: Database
    objects: ObjectStore
    files: FileStore
    batches: BatchStore
    work: BatchWork
    segments: SegmentStore
    disk: DiskReserve

    async def close(self) -> None:
        """Close the database."""
        await self.database.close()


def create_stores(
    database: Database,
    objects: ObjectStore,
    files: FileStore,
    batches: BatchStore,
    region: str = "",
    disk: DiskReserve | None = None,
) -> Stores:
    """Return the stores over a database and an object store, for the work that may be done in a region."""
    work, disk = BatchWork(batches, region=region), disk or DiskReserve()
    return Stores(database, objects, files, batches, work, SegmentStore(objects, files.vault, disk), disk)


async def open_stores(state: ResolvedState, max_unfinished: int) -> Stores:
    """Open the stores of a configuration.

    Raises:
        ConfigError: the database cannot be used, or the object store belongs to another.
    """
    database = await connect(state.database_url, state.patience)
    try:
        objects = await open_objects(database, state.object_store)
    except BaseException:
        await database.close()
        raise
    vault = Vault(database, state.master_key)
    files = FileStore(database, objects, vault)
    batches = BatchStore(database, vault, max_unfinished)
    return create_stores(database, objects, files, batches, state.region_name, disk_reserve_of(state))


def retried(store: S) -> S:
    """Return a store whose coroutines run again while the database or the object store is away: see `retry_outages`."""
    return cast("S", _Retried(store))


class _Retried:
    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not iscoroutinefunction(method):
            return method
        label = f"{type(self._store).__name__}.{name}"
        return lambda *args, **options: retry_outages(label, partial(method, *args, **options))


async def retry_outages(
    what: str,
    work: Callable[[], Awaitable[T]],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    *,
    lost_after_s: LostAfter = None,
) -> T:
    """Return the result of `work`, which runs again while the database or the object store is away.

    `work` must be idempotent: it may have succeeded although its answer was lost. `what` names it in the log.

    Raises:
        ContentLost: the content has been lost for `lost_after_s` seconds.
    """
    num_failures = 0
    lost_at: float | None = None
    while True:
        try:
            return await work()
        except (DBAPIError, StoreUnavailable, OSError) as error:
            if isinstance(error, DBAPIError) and not may_pass(error):
                raise
            if not isinstance(error, ContentLost):
                lost_at = None
            else:
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                bound_s = await lost_after_s() if callable(lost_after_s) else lost_after_s
                if now - lost_at >= (_LOST_AFTER_S if bound_s is None else bound_s):
                    raise
            num_failures += 1
            if worth_logging(num_failures):
                logger.warning("%s failed %d times: %s", what, num_failures, type(error).__name__)
        await sleep(min(_MAX_WAIT_S, _FIRST_WAIT_S * 2 ** min(num_failures, _MAX_DOUBLINGS)))
