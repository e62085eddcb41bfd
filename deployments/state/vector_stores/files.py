"""The files in vector stores, one by one or in batches. A file counts in a search once it is completed, not before."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.ids import clean_id
from deployments.state.database.pages import PageOrder
from deployments.state.database.tables import files as uploads
from deployments.state.database.tables import vector_store_batches as batches
from deployments.state.database.tables import vector_store_files as table
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
from deployments.state.vector_stores.store import VectorStores

_AT_ONCE = 400


class StoreFilePage(NamedTuple):
    """Which files of a store are meant: at most `limit`, after the one with the id `after`."""

    limit: int = 20
    is_ascending: bool = False
    after: str | None = None
    status: FileStatus | None = None
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredStoreBatch:
    """What is known of files that were put into a store together."""

    batch_id: str
    store_id: str
    created_at: float
    is_cancelled: bool
    counts: FileCounts


class VectorStoreFiles:
    """The files in the vector stores of one database."""

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
        """Put files into a store, to be indexed; one that is there already is indexed again.

        Files that are deleted meanwhile are left out; returns the ids of the others.

        Raises:
            StoreMissing: the account has no such store.
            StoreHasExpired: it takes nothing any more.
            StoreFull: it would hold more than `max_files`.
        """
        account_key = await self._vault.account_key(principal.account)
        async with self._database.write() as connection:
            row = await self._stores.row(connection, principal.account, store_id, lock=True)
            now = self._stores.clock()
            store = open_store(row, account_key, now)
            if store.has_expired:
                raise StoreHasExpired
            there = await _among(connection, uploads.c.file_id, [one.file_id for one in new], lock=True)
            rows: list[dict[str, Any]] = []
            for one in {one.file_id: one for one in new if one.file_id in there}.values():
                key, wrapped = account_key.new_object(file_key_id(store.store_id, one.file_id))
                rows.append(
                    {
                        "store_id": store.store_id,
                        "file_id": one.file_id,
                        "account": principal.account,
                        "batch_id": batch_id,
                        "status": "in_progress",
                        "created_at": now,
                        "expires_at": one.expires_at,
                        "usage_bytes": 0,
                        "run_id": "",
                        "num_claims": 0,
                        "lease_until": 0.0,
                        "principal": principal_to_row(principal),
                        "wrapped_key": wrapped,
                        "sealed_record": seal_file(key, one.filename, one.chunking, one.attributes),
                    }
                )
            of_store = table.c.store_id == store.store_id
            for start in range(0, len(rows), _AT_ONCE):
                ids = [row["file_id"] for row in rows[start : start + _AT_ONCE]]
                await connection.execute(delete(table).where(of_store, table.c.file_id.in_(ids)))
            count = await connection.scalar(select(func.count()).select_from(table).where(of_store))
            if int(count or 0) + len(rows) > max_files:
                raise StoreFull
            if rows:
                await connection.execute(insert(table), rows)
            if batch_id is not None:
                batch = {"batch_id": batch_id, "store_id": store.store_id, "account": principal.account}
                await connection.execute(insert(batches).values(**batch, created_at=now, is_cancelled=False))
            days = store.expires_after_days
            expires_at = None if days is None else now + days * 86_400.0
            await note_change(connection, [store.store_id], now, last_active_at=now, expires_at=expires_at)
        return [row["file_id"] for row in rows]

    async def find(self, account: str, store_id: str, file_id: str) -> StoredStoreFile:
        """Return a file in a store.

        Raises:
            StoreMissing, StoreFileMissing: there is no such store or file.
        """
        async with self._database.read() as connection:
            await self._stores.row(connection, account, store_id)
            row = await self._row(connection, store_id, file_id)
        return open_file(row, await self._vault.account_key(account))

    async def list_files(self, account: str, store_id: str, page: StoreFilePage) -> tuple[list[StoredStoreFile], bool]:
        """Return a page of the files in a store, and whether there are more.

        Raises:
            StoreMissing: there is no such store.
            StoreFileMissing: `page.after` is none of its files.
        """
        order = PageOrder(table, table.c.file_id, is_ascending=page.is_ascending)
        query = select(table).where(table.c.store_id == clean_id(store_id))
        if page.status is not None:
            query = query.where(table.c.status == page.status)
        if page.batch_id is not None:
            query = query.where(table.c.batch_id == clean_id(page.batch_id))
        async with self._database.read() as connection:
            await self._stores.row(connection, account, store_id)
            if page.after is not None:
                query = query.where(order.beyond(await self._row(connection, store_id, page.after)))
            query = query.order_by(*order.columns()).limit(page.limit + 1)
            rows = (await connection.execute(query)).mappings().all()
        account_key = await self._vault.account_key(account)
        return [open_file(dict(row), account_key) for row in rows[: page.limit]], len(rows) > page.limit

    async def searchable(self, store: StoredStore) -> list[StoredStoreFile]:
        """Return every file of a store that can be searched."""
        query = select(table).where(table.c.store_id == store.store_id, table.c.status == "completed")
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        account_key = await self._vault.account_key(store.account)
        return [open_file(dict(row), account_key) for row in rows]

    async def set_attributes(
        self, account: str, store_id: str, file_id: str, attributes: Attributes
    ) -> StoredStoreFile:
        """Give a file in a store other attributes; return it.

        Raises:
            StoreMissing, StoreFileMissing: there is no such store or file.
        """
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
        """Take a file out of a store; the file itself stays.

        Raises:
            StoreMissing, StoreFileMissing: there is no such store or file.
        """
        async with self._database.write() as connection:
            await self._stores.row(connection, account, store_id, lock=True)
            row = await self._row(connection, store_id, file_id)
            of_file = (table.c.store_id == row["store_id"], table.c.file_id == row["file_id"])
            await connection.execute(delete(table).where(*of_file))
            await note_change(connection, [row["store_id"]], self._stores.clock())

    async def find_batch(self, account: str, store_id: str, batch_id: str) -> StoredStoreBatch:
        """Return a batch of files.

        Raises:
            StoreMissing, StoreBatchMissing: there is no such store or batch.
        """
        async with self._database.read() as connection:
            await self._stores.row(connection, account, store_id)
            return await self._batch(connection, store_id, batch_id)

    async def cancel_batch(self, account: str, store_id: str, batch_id: str) -> StoredStoreBatch:
        """Have the files of a batch that are not indexed yet not be indexed.

        Raises:
            StoreMissing, StoreBatchMissing: there is no such store or batch.
        """
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
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise StoreBatchMissing
        count = select(table.c.status, func.count()).where(table.c.batch_id == row["batch_id"])
        rows = (await connection.execute(count.group_by(table.c.status))).all()
        counts = FileCounts(**{status: number for status, number in rows})  # noqa: C416 - rows are no plain pairs.
        return StoredStoreBatch(row["batch_id"], row["store_id"], row["created_at"], row["is_cancelled"], counts)

    async def _row(self, connection: AsyncConnection, store_id: str, file_id: str) -> Mapping[str, Any]:
        query = select(table).where(table.c.store_id == clean_id(store_id), table.c.file_id == clean_id(file_id))
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise StoreFileMissing
        return dict(row)


async def _among(connection: AsyncConnection, column: Any, ids: Sequence[str], *, lock: bool) -> Collection[str]:
    """Return those of some ids that a table has."""
    found: set[str] = set()
    for start in range(0, len(ids), _AT_ONCE):
        query = select(column).where(column.in_(ids[start : start + _AT_ONCE]))
        found.update((await connection.scalars(query.with_for_update() if lock else query)).all())
    return found
