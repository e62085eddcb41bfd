"""Uploads of all accounts: rows in the database, and each part as a sealed object of its own until there is a file.

Completing an upload copies its parts into a file, piece by piece, and checks the size and the checksum. If several
processes complete one upload, the first file counts. An upload of another account does not exist.
"""

import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Select, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.config import FilesConfig
from deployments.state.database.connection import Database
from deployments.state.database.queries import clean_id, columns_for, one_row
from deployments.state.database.tables.content import upload_parts, uploads
from deployments.state.encryption.vault import lock_account
from deployments.state.files.content import FileWriter, NewFile
from deployments.state.files.store import ORPHAN_AGE_S, FileStore, StoredFile, count_bytes, record_file
from deployments.state.objects.store import ContentLost, delete_orphans
from deployments.state.quotas import check_objects
from deployments.state.uploads.rows import (
    LIFETIME_S,
    MAX_PARTS,
    MAX_PENDING,
    NewUpload,
    NoRoom,
    StoredPart,
    StoredUpload,
    TooManyParts,
    TooManyUploads,
    UploadEnded,
    UploadNotFound,
    copy_parts,
    find_parts,
    forget_parts,
    seal_record,
    status_of,
    upload_of,
)

_COPYING_S = 3600.0
"""How long parts are kept once the completion of their upload has begun: longer than any copy takes."""
_SWEPT_AT_ONCE = 100


class UploadStore:
    """The uploads of one database, and the objects of a file store. Any number of processes may hold one."""

    def __init__(self, database: Database, files: FileStore) -> None:
        self._database = database
        self._files = files

    async def create(self, new: NewUpload, rules: FilesConfig, max_objects: int | None = None) -> StoredUpload:
        """Create an upload, which holds room for its file; return it.

        Raises:
            TooManyUploads: the account must complete or cancel another one first.
            TooManyObjects: the account has `max_objects`.
            NoRoom: the account has no room for such a file.
        """
        upload_id, now = f"upload_{secrets.token_hex(16)}", self._files.clock()
        key, wrapped = (await self._files.vault.account_key(new.account)).new_object(upload_id)
        row = columns_for(StoredUpload, new._asdict()) | {
            "upload_id": upload_id,
            "status": "pending",
            "received_bytes": 0,
            "num_parts": 0,
            "file_id": None,
            "created_at": now,
            "expires_at": now + LIFETIME_S,
            "kept_until": now + LIFETIME_S,
            "wrapped_key": wrapped,
            "sealed_record": seal_record(new, key),
        }
        del row["filename"]
        pending = select(func.count()).where(
            uploads.c.account == new.account, uploads.c.status == "pending", uploads.c.expires_at > now
        )
        async with self._database.write() as connection:
            await lock_account(connection, new.account)
            if (await connection.scalar(pending) or 0) >= MAX_PENDING:
                raise TooManyUploads
            await check_objects(connection, new.account, max_objects, now)
            if await count_bytes(connection, new.account, now) + new.num_bytes > rules.max_account_bytes:
                raise NoRoom
            await connection.execute(insert(uploads).values(row))
        return upload_of(row, key, now)

    async def find(self, account: str, upload_id: str) -> StoredUpload:
        """Return one upload of an account.

        Raises:
            UploadNotFound: the account has none with this id.
        """
        return await self._to_upload(await self._row(account, upload_id))

    @asynccontextmanager
    async def create_part(self, upload: StoredUpload) -> AsyncIterator[FileWriter]:
        """Open a new part. Its content appears when the block ends without an error; `record_part` then adds it.

        Raises:
            UploadEnded: the upload is not pending.
            StoreUnavailable: the object store fails, or is full.
        """
        if upload.status != "pending":
            raise UploadEnded(upload.status)
        new = NewFile(upload.account, upload.key_id, f"part_{secrets.token_hex(16)}")
        account_key = await self._files.vault.account_key(upload.account)
        object_key = f"uploads/{secrets.token_hex(16)}"
        async with self._files.objects.create(object_key) as writer:
            part = FileWriter(new, account_key, object_key, writer)
            yield part
            await part.finish()

    async def record_part(self, upload: StoredUpload, written: FileWriter, rules: FilesConfig) -> StoredPart:
        """Add a part, whose content has appeared, to an upload; return it. Refused content is deleted.

        Raises:
            UploadNotFound, UploadEnded: the upload has ended meanwhile.
            TooManyParts: it has too many parts, or they hold too much.
            NoRoom: the account has no room for more than the upload's own size.
        """
        row = {
            "part_id": written.file_id,
            "upload_id": upload.upload_id,
            "num_bytes": written.num_bytes,
            "created_at": self._files.clock(),
            "object_key": written.object_key,
            "wrapped_key": written.wrapped_key,
        }
        try:
            async with self._database.write() as connection:
                await self._count_part(connection, upload, written.num_bytes, rules)
                await connection.execute(insert(upload_parts).values(row))
        except (UploadNotFound, UploadEnded, TooManyParts, NoRoom):
            await self._files.drop_object(written.object_key)
            raise
        return StoredPart(**columns_for(StoredPart, row))

    async def _count_part(
        self, connection: AsyncConnection, upload: StoredUpload, num_bytes: int, rules: FilesConfig
    ) -> None:
        """Add a part's size to its upload within the caller's transaction; raises as `record_part` does."""
        await lock_account(connection, upload.account)
        row = await self._locked(connection, upload.account, upload.upload_id)
        received = row["received_bytes"] + num_bytes
        if row["num_parts"] >= MAX_PARTS or received > rules.max_upload_bytes:
            raise TooManyParts
        values = {"received_bytes": received, "num_parts": row["num_parts"] + 1}
        await connection.execute(update(uploads).where(uploads.c.upload_id == upload.upload_id).values(values))
        if received > row["num_bytes"]:
            held = await count_bytes(connection, upload.account, self._files.clock())
            if held > rules.max_account_bytes:
                raise NoRoom

    async def complete(
        self, account: str, upload_id: str, part_ids: Sequence[str], md5: str | None = None
    ) -> tuple[StoredUpload, StoredFile]:
        """Create a file from the parts, in this order; return the upload and the file. The same call again is safe.

        `md5` is the checksum that the file must have, in hexadecimal.

        Raises:
            UploadNotFound: the account has no such upload.
            UploadEnded: the upload is cancelled, expired, or completed with other parts.
            UnknownPart, WrongSize, WrongChecksum: the parts do not give this file.
            StoreUnavailable: the object store fails, or is full.
        """
        completion = hashlib.sha256("\0".join([*part_ids, (md5 or "").lower()]).encode("utf-8", "replace")).digest()
        row = await self._row(account, upload_id)
        if not (row["status"] == "completed" and row["completion"] == completion):
            row = await self._complete(row, part_ids, md5, completion)
        try:
            file = await self._files.find(account, row["file_id"])
        except LookupError:  # It was deleted since.
            raise UploadEnded("completed") from None
        return await self._to_upload(row), file

    async def _complete(
        self, row: dict[str, Any], part_ids: Sequence[str], md5: str | None, completion: bytes
    ) -> dict[str, Any]:
        """Create a file from the parts; return the upload's new row."""
        account, upload_id, now = row["account"], row["upload_id"], self._files.clock()
        _check_pending(row, now)
        parts = await find_parts(self._database, row, part_ids)
        async with self._database.write() as connection:
            await self._locked(connection, account, upload_id)
            kept = {"kept_until": max(row["kept_until"], now + _COPYING_S)}
            await connection.execute(update(uploads).where(uploads.c.upload_id == upload_id).values(kept))
        try:
            file_row = await copy_parts(self._files, await self._to_upload(row), parts, md5)
        except ContentLost:
            row = await self._row(account, upload_id)
            if row["status"] != "pending":
                raise UploadEnded(row["status"]) from None
            raise
        values = {"status": "completed", "file_id": file_row["file_id"], "completion": completion}
        is_pending = (uploads.c.upload_id == upload_id) & (uploads.c.status == "pending")
        async with self._database.write() as connection:
            is_first = (await connection.execute(update(uploads).where(is_pending).values(values))).rowcount == 1
            if is_first:
                await record_file(connection, file_row)
                dropped = await forget_parts(connection, [upload_id])
        if is_first:
            await self._drop(dropped)
            return {**row, **values}
        await self._files.drop_object(file_row["object_key"])
        row = await self._row(account, upload_id)
        if row["completion"] != completion:
            raise UploadEnded(status_of(row, now))
        return row

    async def cancel(self, account: str, upload_id: str) -> StoredUpload:
        """Cancel an upload and delete its parts; return it. Cancelling it again changes nothing.

        Raises:
            UploadNotFound: the account has no such upload.
            UploadEnded: it is completed or expired.
        """
        row = await self._row(account, upload_id)
        if row["status"] != "cancelled":
            async with self._database.write() as connection:
                row = await self._locked(connection, account, upload_id)
                values = {"status": "cancelled"}
                await connection.execute(update(uploads).where(uploads.c.upload_id == upload_id).values(values))
                dropped = await forget_parts(connection, [upload_id])
            await self._drop(dropped)
        return await self._to_upload({**row, "status": "cancelled"})

    async def sweep(self) -> int:
        """Delete the uploads whose time is over, with their parts; return their number."""
        query = select(uploads.c.upload_id).where(uploads.c.kept_until <= self._files.past()).limit(_SWEPT_AT_ONCE)
        query = query.with_for_update()  # A part that is added meanwhile is there by then, or is refused.
        async with self._database.write() as connection:
            ids = (await connection.scalars(query)).all()
            dropped = await forget_parts(connection, ids)
            await connection.execute(delete(uploads).where(uploads.c.upload_id.in_(ids)))
        await self._drop(dropped)
        return len(ids)

    async def sweep_orphans(self, older_than_s: float = ORPHAN_AGE_S) -> int:
        """Delete objects of this age without a part; return their number.

        Raises:
            StoreUnavailable: the object store fails.
        """
        return await delete_orphans(self._files.objects, "uploads", self._files.past() - older_than_s, self._known)

    async def _known(self, object_keys: Sequence[str]) -> Sequence[str]:
        query = select(upload_parts.c.object_key).where(upload_parts.c.object_key.in_(object_keys))
        return (await self._database.fetch(query)).scalars().all()

    async def _row(self, account: str, upload_id: str) -> dict[str, Any]:
        async with self._database.read() as connection:
            return await one_row(connection, _of_upload(account, upload_id), UploadNotFound())

    async def _locked(self, connection: AsyncConnection, account: str, upload_id: str) -> dict[str, Any]:
        """Return the row of a pending upload, locked until the caller's transaction ends."""
        row = await one_row(connection, _of_upload(account, upload_id).with_for_update(), UploadNotFound())
        _check_pending(row, self._files.clock())
        return row

    async def _drop(self, object_keys: Sequence[str]) -> None:
        for object_key in object_keys:
            await self._files.drop_object(object_key)

    async def _to_upload(self, row: Mapping[str, Any]) -> StoredUpload:
        account_key = await self._files.vault.account_key(row["account"])
        key = account_key.open_object(row["upload_id"], row["wrapped_key"])
        return upload_of(row, key, self._files.clock())


def _of_upload(account: str, upload_id: str) -> Select[Any]:
    return select(uploads).where(uploads.c.upload_id == clean_id(upload_id), uploads.c.account == account)


def _check_pending(row: Mapping[str, Any], now: float) -> None:
    status = status_of(row, now)
    if status != "pending":
        raise UploadEnded(status)
