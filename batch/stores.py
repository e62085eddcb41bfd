"""What every process that works on batches holds: database, object store and keys; and how to wait for them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from batch.segments import SegmentStore
from deployments.state.batches.store import BatchStore
from deployments.state.batches.work import BatchWork
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database, connect, may_pass
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore
from deployments.state.objects.marker import open_objects
from deployments.state.objects.store import ContentLost, ObjectStore, StoreUnavailable
from deployments.waiting import worth_logging

logger = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_WAIT_S = 0.2
_MAX_WAIT_S = 5.0
_MAX_DOUBLINGS = 10  # Of the wait, which has its bound long before.
_LOST_AFTER_S = 900.0  # Time for somebody to mount a disk that was away.


@dataclass(frozen=True)
class Stores:
    """Everything that outlives a process, as one that works on batches sees it."""

    database: Database
    objects: ObjectStore
    files: FileStore
    batches: BatchStore
    work: BatchWork
    segments: SegmentStore

    async def close(self) -> None:
        """Close the database."""
        await self.database.close()


def create_stores(database: Database, objects: ObjectStore, files: FileStore, batches: BatchStore) -> Stores:
    """Return the stores over a database and an object store."""
    return Stores(database, objects, files, batches, BatchWork(batches), SegmentStore(objects, files.vault))


async def open_stores(state: ResolvedState, max_unfinished: int) -> Stores:
    """Return the stores that a configuration names, opened.

    Raises:
        ConfigError: the database cannot be used, or the object store does not belong to it.
    """
    database = await connect(state.database_url)
    try:
        objects = await open_objects(database, state.object_store)
    except BaseException:
        await database.close()
        raise
    vault = Vault(database, state.master_key)
    files = FileStore(database, objects, vault)
    return create_stores(database, objects, files, BatchStore(database, vault, max_unfinished))


async def at_once() -> float:
    """Return that what is lost is not waited for."""
    return 0.0


async def when_mounted() -> float:
    """Return for how long, in seconds, what is lost may be on a disk that is away."""
    return _LOST_AFTER_S


async def patiently(
    what: str,
    work: Callable[[], Awaitable[T]],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    *,
    lost_after: Callable[[], Awaitable[float]] = when_mounted,
) -> T:
    """Return what `work` returns; while the database or the object store is away, try again.

    Work that is done twice must be as good as done once: an answer may have been lost on its way here.

    Raises:
        ContentLost: nothing else has come of it for the seconds that `lost_after` returns, asked each time.
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
                if now - lost_at >= await lost_after():
                    raise
            num_failures += 1
            if worth_logging(num_failures):
                logger.warning("%s failed %d times: %s", what, num_failures, type(error).__name__)
        await sleep(min(_MAX_WAIT_S, _FIRST_WAIT_S * 2 ** min(num_failures, _MAX_DOUBLINGS)))
