"""The files in vector stores, single or in batches. A search finds a file once it is completed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.queries import Page, clean_id, fetch_page, id_groups, one_row
from deployments.state.database.tables.content import files as uploads
from deployments.state.database.tables.content import vector_store_batches as batches
from deployments.state.database.tables.content import vector_store_files as table
from deployments.state.encryption.sealing import AccountKey
from deployments.state.identity.principal import Principal, principal_to_row
from deployments.state.vector_stores.rows import (
    Attributes,
    FileCounts,
    FileStatus,
    NewStoreFile,
    StoreBatchMissing,
    StoredStore,
    StoredStoreFile,
    StoreFileMissing,
    StoreFull,
    StoreHasExpired,
    file_key_id,
    note_change,
    open_file,
    open_store,
    seal_file,
)
from deployments.state.vector_stores.store import VectorStores, expiry_of


@dataclass(frozen=True, slots=True)
class StoredStoreBatch:
    """A batch of files that were put into a store together."""

    batch_id: str
    store_id: str
    created_at: float
    is_cancelled: bool
    counts: FileCounts


class VectorStoreFiles:
    """The files in the vector stores of one database.

    Every method raises StoreMissing, StoreFileMissing or StoreBatchMissing if there is no such store, file or batch.
    """

    def __init__(self, stores: VectorStores) -> None:
        self._stores = stores
        self._database = stores.database
        self._vault = stores.vault

    async def attach(
        self,
        principal: Principal,
        store_id: str,
        new: Sequence[NewStoreFile],
        max_files: int,
        batch_id: str | None = None,
    ) -> list[str]:
        """Put files into a store, to be indexed; a file that is already there is indexed again.

        Return the ids of the files that still exist.

        Raises:
            StoreHasExpired: the store has expired.
            StoreFull: the store would hold more than `max_files`.
        """
        account_key = await self._vault.account_key(principal.account)
        async with self._database.write() as connection:
            row = await self._stores.row(connection, principal.account, store_id, lock=True)
            now = self._stores.clock()
            store = open_store(row, account_key, now)
            if store.has_expired:
                raise StoreHasExpired
            there: set[str] = set()
            for ids in id_groups([one.file_id for one in new]):
                query = select(uploads.c.file_id).where(uploads.c.file_id.in_(ids)).with_for_update()
                there.update((await connection.scalars(query)).all())
            wanted = {one.file_id: one for one in new if one.file_id in there}
            shared = {"batch_id": batch_id, "created_at": now, "principal": principal_to_row(principal)}
            shared["key_id"] = principal.key_id
            rows = [_new_row(account_key, store, one) | shared for one in wanted.values()]
            of_store = table.c.store_id == store.store_id
            for ids in id_groups(list(wanted)):
                await connection.execute(delete(table).where(of_store, table.c.file_id.in_(ids)))
            count = await connection.scalar(select(func.count()).select_from(table).where(of_store))
            if int(count or 0) + len(rows) > max_files:
                raise StoreFull
            if rows:
                await connection.execute(insert(table), rows)
            if batch_id is not None:
                batch = {"batch_id": batch_id, "store_id": store.store_id, "account": principal.account}
                await connection.execute(insert(batches).values(**batch, created_at=now, is_cancelled=False))
            expires_at = expiry_of(now, store.expires_after_days)
            await note_change(connection, [store.store_id], now, last_active_at=now, expires_at=expires_at)
        return list(wanted)

    async def find(self, account: str, store_id: str, file_id: str) -> StoredStoreFile:
        """Return a file in a store."""
        async with self._database.read() as connection:
            await self._stores.row(connection, account, store_id)
            row = await self._row(connection, store_id, file_id)
        return open_file(row, await self._vault.account_key(account))

    async def list_files(
        self, account: str, store_id: str, page: Page, status: FileStatus | None = None, batch_id: str | None = None
    ) -> tuple[list[StoredStoreFile], bool]:
        """Return a page of the files in a store, or of those of one status or batch, and whether there are more.

        Raises:
            StoreFileMissing: the store has no file `page.after` or `page.before`.
        """
        query = select(table).where(table.c.store_id == clean_id(store_id))
        where = [] if status is None else [table.c.status == status]
        if batch_id is not None:
            where.append(table.c.batch_id == clean_id(batch_id))
        async with self._database.read() as connection:
            await self._stores.row(connection, account, store_id)
            rows, has_more = await fetch_page(connection, query, table.c.file_id, page, StoreFileMissing, *where)
        account_key = await self._vault.account_key(account)
        return [open_file(row, account_key) for row in rows], has_more

    async def searchable(self, store: StoredStore) -> list[StoredStoreFile]:
        """Return the files of a store for searches."""
        query = select(table).where(table.c.store_id == store.store_id, table.c.status == "completed")
        rows = (await self._database.fetch(query)).mappings().all()
        account_key = await self._vault.account_key(store.account)
        return [open_file(dict(row), account_key) for row in rows]

    async def unfinished_runs(self, store: StoredStore) -> Collection[str]:
        """Return the runs that have put only a part of their file into the index of a store."""
        is_unfinished = (table.c.status == "in_progress", table.c.num_indexed > 0)
        query = select(table.c.run_id).where(table.c.store_id == store.store_id, *is_unfinished).distinct()
        return (await self._database.fetch(query)).scalars().all()

    async def set_attributes(
        self, account: str, store_id: str, file_id: str, attributes: Attributes
    ) -> StoredStoreFile:
        """Replace the attributes of a file in a store; return the file."""
        account_key = await self._vault.account_key(account)
        async with self._database.write() as connection:
            await self._stores.row(connection, account, store_id, lock=True)
            row = await self._row(connection, store_id, file_id)
            file = open_file(row, account_key)
            sealed = seal_file(file.key, file.filename, file.chunking, attributes)
            statement = update(table).where(table.c.store_id == file.store_id, table.c.file_id == file.file_id)
            await connection.execute(statement.values(sealed_record=sealed))
            await note_change(connection, [file.store_id], self._stores.clock())
        return await self.find(account, store_id, file_id)

    async def detach(self, account: str, store_id: str, file_id: str) -> None:
        """Remove a file from a store; the file itself stays."""
        async with self._database.write() as connection:
            await self._stores.row(connection, account, store_id, lock=True)
            row = await self._row(connection, store_id, file_id)
            of_file = (table.c.store_id == row["store_id"], table.c.file_id == row["file_id"])
            await connection.execute(delete(table).where(*of_file))
            await note_change(connection, [row["store_id"]], self._stores.clock())

    async def find_batch(self, account: str, store_id: str, batch_id: str) -> StoredStoreBatch:
        """Return a batch of files."""
        async with self._database.read() as connection:
            await self._stores.row(connection, account, store_id)
            return await self._batch(connection, store_id, batch_id)

    async def cancel_batch(self, account: str, store_id: str, batch_id: str) -> StoredStoreBatch:
        """Cancel a batch: its files that are not indexed yet will not be. Return the batch."""
        async with self._database.write() as connection:
            await self._stores.row(connection, account, store_id, lock=True)
            batch = await self._batch(connection, store_id, batch_id)
            waiting = (table.c.batch_id == batch.batch_id, table.c.status == "in_progress")
            cancelled = await connection.execute(update(table).where(*waiting).values(status="cancelled", run_id=""))
            if cancelled.rowcount:
                statement = update(batches).where(batches.c.batch_id == batch.batch_id)
                await connection.execute(statement.values(is_cancelled=True))
                await note_change(connection, [batch.store_id], self._stores.clock())
            return await self._batch(connection, store_id, batch_id)

    async def _batch(self, connection: AsyncConnection, store_id: str, batch_id: str) -> StoredStoreBatch:
        query = select(batches).where(
            batches.c.batch_id == clean_id(batch_id), batches.c.store_id == clean_id(store_id)
        )
        row = await one_row(connection, query, StoreBatchMissing())
        count = select(table.c.status, func.count()).where(table.c.batch_id == row["batch_id"])
        rows = (await connection.execute(count.group_by(table.c.status))).all()
        counts = FileCounts(**{status: number for status, number in rows})  # noqa: C416 - rows are not plain pairs.
        return StoredStoreBatch(row["batch_id"], row["store_id"], row["created_at"], row["is_cancelled"], counts)

    async def _row(self, connection: AsyncConnection, store_id: str, file_id: str) -> dict[str, Any]:
        query = select(table).where(table.c.store_id == clean_id(store_id), table.c.file_id == clean_id(file_id))
        return await one_row(connection, query, StoreFileMissing())


def _new_row(account_key: AccountKey, store: StoredStore, new: NewStoreFile) -> dict[str, Any]:
    """Return the row of a file that waits to be indexed, without its time, batch and principal."""
    key, wrapped = account_key.new_object(file_key_id(store.store_id, new.file_id))
    return {
        "store_id": store.store_id,
        "file_id": new.file_id,
        "account": store.account,
        "status": "in_progress",
        "expires_at": new.expires_at,
        "usage_bytes": 0,
        "run_id": "",
        "num_indexed": 0,
        "num_counted": 0,
        "indexed_in": "",
        "num_claims": 0,
        "lease_until": 0.0,
        "wrapped_key": wrapped,
        "sealed_record": seal_file(key, new.filename, new.chunking, new.attributes),
    }
