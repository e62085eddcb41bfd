"""The backlog of two object stores: a list in the database, and the copier that works through it.

`pair` adds to the list before an object counts as written. Housekeeping runs the copier.
"""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import delete, func, select

from deployments.state.database.connection import Database
from deployments.state.database.tables.content import object_copies as table
from deployments.state.objects.store import ObjectMissing, ObjectStore, StoreUnavailable

logger = logging.getLogger(__name__)

BACK_OFF_S = 10.0
_AT_ONCE = 100
_PIECE_BYTES = 5 * 1024 * 1024


@dataclass(slots=True)
class Side:
    """One of the two stores, under its name in the database."""

    name: str
    store: ObjectStore
    clock: Callable[[], float] = time.monotonic
    down_until: float = field(default=0.0, init=False)

    @property
    def is_backing_off(self) -> bool:
        """Whether it failed within BACK_OFF_S."""
        return self.clock() < self.down_until

    def note_failure(self, error: StoreUnavailable) -> None:
        """Ask the other store first for BACK_OFF_S."""
        if not self.is_backing_off:
            logger.warning("Backing off from the object store %s for %g s: %s", self.name, BACK_OFF_S, error)
        self.down_until = self.clock() + BACK_OFF_S


@dataclass(frozen=True, slots=True)
class PendingCopy:
    """An object that a store lacks, or, if it `is_deleted`, has still to delete."""

    store: str
    object_key: str
    is_deleted: bool
    token: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many objects a store lacks or has to delete, and the age of the oldest note in seconds."""

    num_objects: int
    oldest_s: float


class PendingCopies:
    """The list. Every method raises DBAPIError if the database is away."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(self, store: str, object_key: str, *, is_deleted: bool = False) -> None:
        """Note that a store lacks an object, or has still to delete it, in place of an earlier note."""
        row = {
            "store": store,
            "object_key": object_key,
            "is_deleted": is_deleted,
            "since": self._clock(),
            "token": secrets.token_hex(16),
        }
        await self._database.execute(self._database.upsert(table, ["store", "object_key"]), row)

    async def oldest(self, store: str, num: int) -> Sequence[PendingCopy]:
        """Return the oldest notes about a store, at most `num`."""
        columns = (table.c.store, table.c.object_key, table.c.is_deleted, table.c.token)
        query = select(*columns).where(table.c.store == store).order_by(table.c.since).limit(num)
        return [PendingCopy(*row) for row in await self._database.fetch(query)]

    async def settle(self, pending: PendingCopy) -> None:
        """Remove a note, unless it was replaced meanwhile."""
        of_note = (table.c.store == pending.store) & (table.c.object_key == pending.object_key)
        await self._database.execute(delete(table).where(of_note & (table.c.token == pending.token)))

    async def backlog(self) -> dict[str, Backlog]:
        """Return the backlog of each store that has one."""
        query = select(table.c.store, func.count(), func.min(table.c.since)).group_by(table.c.store)
        now = self._clock()
        async with self._database.read() as connection:
            rows = await connection.execute(query)
            return {store: Backlog(num, max(0.0, now - since)) for store, num, since in rows}


class Copier:
    """Copies the objects that a store lacks, and deletes those that it has to delete, the oldest note first."""

    def __init__(self, near: Side, far: Side, pending: PendingCopies) -> None:
        self._near = near
        self._far = far
        self._pending = pending

    async def run(self) -> int:
        """Work through the list, until a store fails; return the number of objects.

        An object that the other store does not have either was deleted since.

        Raises:
            DBAPIError: the database is away.
        """
        return await self._copy_to(self._near, self._far) + await self._copy_to(self._far, self._near)

    async def _copy_to(self, side: Side, source: Side) -> int:
        num_done = 0
        while notes := await self._pending.oldest(side.name, _AT_ONCE):
            for note in notes:
                try:
                    await self._copy(note, side, source)
                except StoreUnavailable:
                    return num_done
                await self._pending.settle(note)
                num_done += 1
        return num_done

    async def _copy(self, note: PendingCopy, side: Side, source: Side) -> None:
        if note.is_deleted:
            await side.store.delete(note.object_key)
            return
        try:
            num_bytes = await source.store.size(note.object_key)
            async with side.store.create(note.object_key) as writer:
                for start in range(0, num_bytes, _PIECE_BYTES):
                    stop = min(start + _PIECE_BYTES, num_bytes)
                    await writer.write(await source.store.read(note.object_key, start, stop))
        except ObjectMissing:
            return
