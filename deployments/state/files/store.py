"""The files of all accounts: metadata in the database, content in the object store, sealed under a key for each file.

A file of another account does not exist, nor does an expired file. Content is written before its row and deleted after
it, so that every row has its content. Objects without a row are orphans, and are deleted later.

A file is hidden by the wall clock once it has expired, and deleted by a clock that does not jump ahead.
"""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Delete, Select, case, delete, exists, func, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.clock import PastClock, uptime
from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, columns_for, fetch_page, id_groups, one_row
from deployments.state.database.tables.content import ENDED, batches, files, uploads
from deployments.state.encryption.sealing import DataKey
from deployments.state.encryption.vault import Vault, lock_account
from deployments.state.files.content import ContentReader, FileWriter, NewFile, open_name
from deployments.state.objects.store import ObjectStore, StoreUnavailable, delete_orphans
from deployments.state.quotas import check_objects
from deployments.state.vector_stores.rows import forget_files

ORPHAN_AGE_S = 6 * 3600.0
"""An object of this age without a row is an orphan: no write takes that long."""


class FileNotFound(LookupError):
    """The account has no such file."""


class FileInUse(Exception):
    """The file is the input of the unfinished batch `batch_id`."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"The batch {batch_id} is using the file.")
        self.batch_id = batch_id


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A stored file. Times are Unix seconds."""

    file_id: str
    account: str
    purpose: str
    filename: str
    num_bytes: int
    created_at: float
    expires_at: float


class Hold(NamedTuple):
    """Room that is held for a file, as a row of an upload that no client knows."""

    hold_id: str
    num_bytes: int


class FileStore:
    """The files of one database and object store. Any number of processes may hold one."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        vault: Vault,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = uptime,
    ) -> None:
        self.objects = objects
        self.vault = vault
        self._database = database
        self.clock = clock
        self.past = PastClock(clock, uptime)

    @asynccontextmanager
    async def create(self, new: NewFile) -> AsyncIterator[FileWriter]:
        """Open a new file. Its content appears when the block ends without an error; `record` then makes it a file.

        Raises:
            StoreUnavailable: the object store fails, or is full.
        """
        account_key = await self.vault.account_key(new.account)
        object_key = f"files/{secrets.token_hex(16)}"
        async with self.objects.create(object_key) as writer:
            file = FileWriter(new, account_key, object_key, writer)
            yield file
            await file.finish()

    async def hold(
        self, new: NewFile, num_bytes: int, for_s: float, max_bytes: int, max_objects: int | None = None
    ) -> Hold:
        """Hold room for a file that may have `num_bytes`, or all the room there is, so that no other file takes it.

        The account's files may have `max_bytes` together, and the account `max_objects`. The hold ends with `record` or
        `release`, or after `for_s` seconds.

        Raises:
            TooManyObjects: the account has `max_objects`.
        """
        hold_id, now = f"hold_{secrets.token_hex(16)}", self.clock()
        await self.vault.account_key(new.account)  # The lock is on its row.
        row: dict[str, Any] = {"upload_id": hold_id, "account": new.account, "key_id": new.key_id, "purpose": "hold"}
        row |= {"status": "pending", "created_at": now, "expires_at": now, "kept_until": now + for_s}
        row |= {"received_bytes": 0, "num_parts": 0, "file_lifetime_s": 0.0, "wrapped_key": b"", "sealed_record": b""}
        async with self._database.write() as connection:
            await lock_account(connection, new.account)
            await check_objects(connection, new.account, max_objects, now)
            left = max(0, max_bytes - await count_bytes(connection, new.account, now))
            await connection.execute(insert(uploads).values(row | {"num_bytes": min(num_bytes, left)}))
        return Hold(hold_id, min(num_bytes, left))

    async def release(self, hold: Hold) -> None:
        """Give back the room of a file that is not stored; if that fails, the hold ends by itself."""
        with suppress(DBAPIError):
            await self._database.execute(_ended(hold))

    async def record(self, row: Mapping[str, Any], hold: Hold | None = None) -> StoredFile:
        """Add the row of a file whose content has appeared, and end its hold; return the file."""

        async def record(is_again: bool) -> None:
            async with self._database.write() as connection:
                await connection.execute(self._database.insert(files, is_again=is_again).values(**row))
                if hold is not None:
                    await connection.execute(_ended(hold))

        await self._database.repeat(record)
        return await self._to_file(row)

    async def find(self, account: str, file_id: str, *, even_expired: bool = False) -> StoredFile:
        """Return one file of an account.

        Raises:
            FileNotFound: the account has none with this id.
        """
        return await self._to_file(await self._row(account, file_id, even_expired=even_expired))

    async def find_all(self, account: str, file_ids: Sequence[str]) -> dict[str, StoredFile]:
        """Return the account's files among `file_ids`, by id."""
        found: dict[str, StoredFile] = {}
        wanted = [file_id for file_id in dict.fromkeys(file_ids) if "\0" not in file_id]
        for ids in id_groups(wanted):
            query = select(files).where(files.c.account == account, files.c.expires_at > self.clock())
            query = query.where(files.c.file_id.in_(ids))
            rows = (await self._database.fetch(query)).mappings().all()
            found |= {row["file_id"]: await self._to_file(dict(row)) for row in rows}
        return found

    async def list_files(self, account: str, page: Page, purpose: str | None = None) -> tuple[list[StoredFile], bool]:
        """Return a page of an account's files, of one purpose if it is given, and whether there are more.

        Raises:
            FileNotFound: the account has no file `page.after`.
        """
        query = select(files).where(files.c.account == account, files.c.expires_at > self.clock())
        where = [] if purpose is None else [files.c.purpose == purpose]
        async with self._database.read() as connection:
            rows, has_more = await fetch_page(connection, query, files.c.file_id, page, FileNotFound, *where)
        return [await self._to_file(row) for row in rows], has_more

    async def read(self, file: StoredFile, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield the content of a file from `start` up to `stop`, in pieces of a mebibyte or less.

        Raises:
            FileNotFound: the file is gone.
            StoreUnavailable: the object store fails.
            ContentLost: the content is missing or damaged.
        """
        reader = await self.open(file)
        async for piece in reader.pieces(start, file.num_bytes if stop is None else stop):
            yield piece

    async def open(self, file: StoredFile) -> ContentReader:
        """Return a reader of a file's content, even if the file has expired meanwhile.

        Raises:
            FileNotFound: the file is gone.
        """
        row = await self._row(file.account, file.file_id, even_expired=True)
        return ContentReader(self.objects, row, await self._data_key(row))

    async def delete(self, account: str, file_id: str) -> None:
        """Delete a file, also from every vector store.

        Raises:
            FileNotFound: the account has none with this id.
            FileInUse: a batch still needs it.
        """
        row = await self._row(account, file_id)
        async with self._database.write() as connection:
            # Locked first: a new batch with this input is then committed, or will not find the file.
            await connection.execute(select(files.c.file_id).where(files.c.file_id == file_id).with_for_update())
            user = await connection.scalar(_users_of(file_id, account).with_only_columns(batches.c.batch_id).limit(1))
            if user is not None:
                raise FileInUse(user)
            await connection.execute(delete(files).where(files.c.file_id == file_id))
            await forget_files(connection, [file_id], self.clock())
        await self.drop_object(row["object_key"])

    async def drop_object(self, object_key: str) -> None:
        """Delete content whose row is gone; if that fails, `sweep_orphans` deletes it later."""
        with suppress(StoreUnavailable):
            await self.objects.delete(object_key)

    async def sweep(self) -> int:
        """Delete the expired files that no unfinished batch needs; return how many."""
        query = (
            select(files.c.file_id, files.c.object_key)
            .where(files.c.expires_at <= self.past(), ~exists(_users_of(files.c.file_id, files.c.account)))
            .limit(1000)
        )
        async with self._database.write() as connection:
            rows = (await connection.execute(query)).all()
            ids = [file_id for file_id, _ in rows]
            for group in id_groups(ids):
                await connection.execute(delete(files).where(files.c.file_id.in_(group)))
            await forget_files(connection, ids, self.clock())
        for _, object_key in rows:
            await self.drop_object(object_key)
        return len(rows)

    async def sweep_orphans(self, older_than_s: float = ORPHAN_AGE_S) -> int:
        """Delete objects of this age that no file names, and drafts of killed writers; return how many.

        Raises:
            StoreUnavailable: the object store fails.
        """
        num_dropped = await self.objects.drop_unfinished(older_than_s)
        return num_dropped + await delete_orphans(self.objects, "files", self.past() - older_than_s, self._known)

    async def _known(self, object_keys: Sequence[str]) -> Sequence[str]:
        query = select(files.c.object_key).where(files.c.object_key.in_(object_keys))
        return (await self._database.fetch(query)).scalars().all()

    async def _row(self, account: str, file_id: str, *, even_expired: bool = False) -> dict[str, Any]:
        query = select(files).where(files.c.file_id == file_id, files.c.account == account)
        if not even_expired:
            query = query.where(files.c.expires_at > self.clock())
        if "\0" in file_id:
            raise FileNotFound
        async with self._database.read() as connection:
            return await one_row(connection, query, FileNotFound())

    async def _data_key(self, row: Mapping[str, Any]) -> DataKey:
        account_key = await self.vault.account_key(row["account"])
        return account_key.open_object(row["file_id"], row["wrapped_key"])

    async def _to_file(self, row: Mapping[str, Any]) -> StoredFile:
        name = open_name(row, await self._data_key(row))
        return StoredFile(**columns_for(StoredFile, row), filename=name)


async def record_file(connection: AsyncConnection, row: Mapping[str, Any]) -> None:
    """Add the row of a file within the caller's transaction."""
    await connection.execute(insert(files).values(**row))


async def count_bytes(connection: AsyncConnection, account: str, now: float) -> int:
    """Return the bytes of an account's files, with the room that its pending uploads hold."""
    stored = select(func.coalesce(func.sum(files.c.num_bytes), 0)).where(files.c.account == account)
    room = case((uploads.c.num_bytes > uploads.c.received_bytes, uploads.c.num_bytes), else_=uploads.c.received_bytes)
    held = select(func.coalesce(func.sum(room), 0)).where(
        uploads.c.account == account, uploads.c.status == "pending", uploads.c.kept_until > now
    )
    return int(await connection.scalar(stored) or 0) + int(await connection.scalar(held) or 0)


def _ended(hold: Hold) -> Delete:
    return delete(uploads).where(uploads.c.upload_id == hold.hold_id)


def _users_of(file_id: Any, account: Any) -> Select[Any]:
    """Return the query for the account's unfinished batches with this input; those of other accounts will fail."""
    is_input = batches.c.input_file_id == file_id, batches.c.account == account
    return select(batches).where(*is_input, batches.c.status.not_in(ENDED))
