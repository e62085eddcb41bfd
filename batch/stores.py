"""The stores that every batch process opens, and the retry policy for their outages.

Coordinator and workers do all their storage work through `retry_outages`.
"""

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
from deployments.state.disk import DiskReserve, disk_reserve_of
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore
from deployments.state.objects.marker import open_objects
from deployments.state.objects.store import ContentLost, ObjectStore, StoreUnavailable
from deployments.waiting import worth_logging

logger = logging.getLogger(__name__)
T = TypeVar("T")
LostAfter = float | None | Callable[[], Awaitable[float | None]]
"""Seconds, None for the default, or a function that returns either after each try."""

_LOST_AFTER_S = 900.0
"""How long lost content may be on a disk that an operator has yet to mount."""
_FIRST_WAIT_S = 0.2
_MAX_WAIT_S = 5.0
_MAX_DOUBLINGS = 10  # Keeps 2**n small; the wait reaches its bound long before.


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
        ContentLost: every try of the last `lost_after_s` seconds ended so.
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
