"""The vector stores of all accounts: their names, files and expiry. The index is in `deployments.tools`.

A store of another account does not exist. An expired store is empty, but can still be shown for a month.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.config import DAY_S
from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, clean_id, fetch_page, one_row
from deployments.state.database.tables.content import vector_store_batches as batches
from deployments.state.database.tables.content import vector_store_files as files
from deployments.state.database.tables.content import vector_stores as table
from deployments.state.encryption.vault import Vault, lock_account
from deployments.state.quotas import check_objects
from deployments.state.vector_stores.rows import (
    FileCounts,
    NewStore,
    StoredStore,
    StoreFull,
    StoreHasExpired,
    StoreMissing,
    note_change,
    open_store,
    seal_store,
)

KEPT_EXPIRED_S = 30 * DAY_S
"""How long an expired store can still be shown."""
_TOUCH_EVERY_S = 60.0
_SWEPT_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class StoreChange:
    """A change of a store; None changes nothing, and `expires_after_days` counts only with `sets_expiry`."""

    name: str | None = None
    metadata: Mapping[str, str] | None = None
    sets_expiry: bool = False
    expires_after_days: int | None = None


class VectorStores:
    """The vector stores of one database.

    Every method with a `store_id` raises StoreMissing if the account has no such store.
    """

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self.database = database
        self.vault = vault
        self.clock = clock

    async def create(self, new: NewStore, max_stores: int, max_objects: int | None = None) -> StoredStore:
        """Create a store; return it.

        Raises:
            StoreFull: the account already has `max_stores`.
            TooManyObjects: it already has `max_objects`.
        """
        account_key = await self.vault.account_key(new.account)
        key, wrapped = account_key.new_object(new.store_id)
        now = self.clock()
        row = {
            "store_id": new.store_id,
            "account": new.account,
            "embedding_model": new.embedding_model,
            "created_at": now,
            "last_active_at": now,
            "expires_after_days": new.expires_after_days,
            "expires_at": expiry_of(now, new.expires_after_days),
            "has_expired": False,
            "is_deleted": False,
            "revision": 1,
            "is_dirty": False,
            "tidy_at": None,
            "wrapped_key": wrapped,
            "sealed_record": seal_store(key, new.name, new.description, new.metadata),
        }
        count = select(func.count()).where(table.c.account == new.account, ~table.c.is_deleted, ~table.c.has_expired)
        async with self.database.write() as connection:
            await lock_account(connection, new.account)
            if int(await connection.scalar(count) or 0) >= max_stores:
                raise StoreFull
            await check_objects(connection, new.account, max_objects, now)
            await connection.execute(insert(table).values(row))
        return open_store(row, account_key, now)

    async def find(self, account: str, store_id: str) -> StoredStore:
        """Return a store of an account, also an expired one."""
        async with self.database.read() as connection:
            row = await self.row(connection, account, store_id)
            store = open_store(row, await self.vault.account_key(account), self.clock())
            return (await self._counted(connection, [store]))[0]

    async def find_all(self, account: str, store_ids: Sequence[str]) -> dict[str, StoredStore]:
        """Return the account's stores among `store_ids`, by id, also expired ones; without counts of their files."""
        among = table.c.store_id.in_([clean_id(store_id) for store_id in store_ids])
        query = select(table).where(among, table.c.account == account, ~table.c.is_deleted)
        rows = await self.database.read_at_once(lambda connection: connection.execute(query).mappings().all())
        if not rows:
            return {}
        account_key = await self.vault.account_key(account)
        return {row["store_id"]: open_store(dict(row), account_key, self.clock()) for row in rows}

    async def list_stores(self, account: str, page: Page) -> tuple[list[StoredStore], bool]:
        """Return a page of an account's stores, and whether there are more.

        Raises:
            StoreMissing: the account has no store `page.after` or `page.before`.
        """
        query = select(table).where(table.c.account == account, ~table.c.is_deleted)
        account_key = await self.vault.account_key(account)
        async with self.database.read() as connection:
            rows, has_more = await fetch_page(connection, query, table.c.store_id, page, StoreMissing)
            found = [open_store(row, account_key, self.clock()) for row in rows]
            return await self._counted(connection, found), has_more

    async def update(self, account: str, store_id: str, change: StoreChange) -> StoredStore:
        """Change a store; return it. Counts as a use.

        Raises:
            StoreHasExpired: the store has expired.
        """
        account_key = await self.vault.account_key(account)
        async with self.database.write() as connection:
            row = await self.row(connection, account, store_id, lock=True)
            now = self.clock()
            store = open_store(row, account_key, now)
            if store.has_expired:
                raise StoreHasExpired
            key = account_key.open_object(row["store_id"], row["wrapped_key"])
            name = store.name if change.name is None else change.name
            metadata = store.metadata if change.metadata is None else change.metadata
            values: dict[str, Any] = {"sealed_record": seal_store(key, name, store.description, metadata)}
            days = change.expires_after_days if change.sets_expiry else store.expires_after_days
            values |= {"last_active_at": now, "expires_after_days": days, "expires_at": expiry_of(now, days)}
            await connection.execute(update(table).where(table.c.store_id == store.store_id).values(values))
        return await self.find(account, store_id)

    async def touch(self, store: StoredStore) -> None:
        """Note that a store was used, at most once a minute."""
        now = self.clock()
        if now - store.last_active_at < _TOUCH_EVERY_S:
            return
        values = {"last_active_at": now, "expires_at": expiry_of(now, store.expires_after_days)}
        statement = update(table).where(table.c.store_id == store.store_id, ~table.c.has_expired)
        await self.database.execute(statement.values(values))

    async def delete(self, account: str, store_id: str) -> None:
        """Delete a store: its keys are gone at once, its index at the next tidying."""
        async with self.database.write() as connection:
            row = await self.row(connection, account, store_id, lock=True)
            await self.clear(connection, [row["store_id"]], is_deleted=True, wrapped_key=b"", sealed_record=b"")

    async def clear(self, connection: AsyncConnection, store_ids: Sequence[str], **values: Any) -> None:
        """Remove all files from stores, and change their rows to `values`."""
        await connection.execute(files.delete().where(files.c.store_id.in_(store_ids)))
        await connection.execute(batches.delete().where(batches.c.store_id.in_(store_ids)))
        await note_change(connection, store_ids, self.clock(), **values)

    async def sweep(self) -> int:
        """End expired stores and remove expired files; return the number of ended stores."""
        now = self.clock()
        ended = select(table.c.store_id).where(table.c.expires_at <= now, ~table.c.has_expired, ~table.c.is_deleted)
        long_ago = select(table.c.store_id).where(
            table.c.expires_at <= now - KEPT_EXPIRED_S, table.c.has_expired, ~table.c.is_deleted
        )
        gone = select(files.c.store_id, files.c.file_id).where(files.c.expires_at <= now).limit(_SWEPT_AT_ONCE)
        async with self.database.write() as connection:
            store_ids = (await connection.scalars(ended.limit(_SWEPT_AT_ONCE))).all()
            if store_ids:
                await self.clear(connection, store_ids, has_expired=True)
            old = (await connection.scalars(long_ago.limit(_SWEPT_AT_ONCE))).all()
            if old:
                await self.clear(connection, old, is_deleted=True, wrapped_key=b"", sealed_record=b"")
            left = defaultdict(list)
            for store_id, file_id in (await connection.execute(gone)).all():
                left[store_id].append(file_id)
            for store_id, file_ids in left.items():
                among = files.c.file_id.in_(file_ids)
                await connection.execute(files.delete().where(files.c.store_id == store_id, among))
            if left:
                await note_change(connection, list(left), now)
        return len(store_ids)

    async def row(
        self, connection: AsyncConnection, account: str, store_id: str, *, lock: bool = False
    ) -> dict[str, Any]:
        """Return the row of a store."""
        query = select(table).where(table.c.store_id == clean_id(store_id), table.c.account == account)
        query = query.where(~table.c.is_deleted)
        return await one_row(connection, query.with_for_update() if lock else query, StoreMissing())

    async def _counted(self, connection: AsyncConnection, found: Sequence[StoredStore]) -> list[StoredStore]:
        """Return the stores with the counts and the size of their files."""
        columns = (files.c.store_id, files.c.status)
        query = select(*columns, func.count(), func.sum(files.c.usage_bytes)).group_by(*columns)
        query = query.where(files.c.store_id.in_([store.store_id for store in found]))
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        sizes: dict[str, int] = defaultdict(int)
        for store_id, status, count, num_bytes in (await connection.execute(query)).all():
            counts[store_id][status] = count
            sizes[store_id] += int(num_bytes or 0)
        return [
            replace(store, usage_bytes=sizes[store.store_id], counts=FileCounts(**counts[store.store_id]))
            for store in found
        ]


def expiry_of(used_at: float, days: int | None) -> float | None:
    """Return the expiry of a store that lives `days` after its last use; None for no expiry."""
    return None if days is None else used_at + days * DAY_S
