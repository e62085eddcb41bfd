"""What the one of two object stores lacks that the other has: a durable list, in the database.

`pair` adds to it before an object counts as written; `copier` works it off.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select

from deployments.state.database.connection import Database
from deployments.state.database.tables import object_copies as table


@dataclass(frozen=True, slots=True)
class Owed:
    """An object that a store lacks, or, where it `is_deleted`, still has."""

    store: str
    object_key: str
    is_deleted: bool
    token: str


@dataclass(frozen=True, slots=True)
class Arrears:
    """How much a store lacks: a number of objects, and the age of the oldest note in seconds."""

    num_objects: int
    oldest_s: float


class OwedCopies:
    """The list. Every method raises DBAPIError if the database is away."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(self, store: str, object_key: str, *, is_deleted: bool = False) -> None:
        """Note that a store lacks an object, or has still to delete it; what was noted of it before is replaced."""
        row = {
            "store": store,
            "object_key": object_key,
            "is_deleted": is_deleted,
            "since": self._clock(),
            "token": secrets.token_hex(16),
        }
        async with self._database.write() as connection:
            await connection.execute(self._database.upsert(table, ["store", "object_key"]), row)

    async def oldest(self, store: str, num: int) -> Sequence[Owed]:
        """Return the notes about a store that are oldest, `num` at most."""
        columns = (table.c.store, table.c.object_key, table.c.is_deleted, table.c.token)
        query = select(*columns).where(table.c.store == store).order_by(table.c.since).limit(num)
        async with self._database.read() as connection:
            return [Owed(*row) for row in await connection.execute(query)]

    async def settle(self, owed: Owed) -> None:
        """Strike a note from the list, unless it was replaced meanwhile."""
        of_note = (table.c.store == owed.store) & (table.c.object_key == owed.object_key)
        async with self._database.write() as connection:
            await connection.execute(delete(table).where(of_note & (table.c.token == owed.token)))

    async def arrears(self) -> dict[str, Arrears]:
        """Return how much each store lacks; those that lack nothing are left out."""
        query = select(table.c.store, func.count(), func.min(table.c.since)).group_by(table.c.store)
        now = self._clock()
        async with self._database.read() as connection:
            rows = await connection.execute(query)
            return {store: Arrears(num, max(0.0, now - since)) for store, num, since in rows}
