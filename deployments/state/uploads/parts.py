"""The parts of uploads: found in the order that is asked for, copied into a file, forgotten."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.queries import clean_id, id_groups
from deployments.state.database.tables import upload_parts
from deployments.state.files.content import ContentReader, NewFile
from deployments.state.files.store import FileStore
from deployments.state.uploads.rows import StoredUpload, UnknownPart, WrongChecksum, WrongSize


async def find_parts(database: Database, upload: Mapping[str, Any], part_ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the rows of an upload's parts, in this order; `upload` is its row.

    Raises:
        UnknownPart: it has no such part.
        WrongSize: they do not hold together what the upload was created for.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for ids in id_groups(part_ids):
        query = select(upload_parts).where(upload_parts.c.upload_id == upload["upload_id"])
        query = query.where(upload_parts.c.part_id.in_([clean_id(part_id) for part_id in ids]))
        async with database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        found |= {row["part_id"]: dict(row) for row in rows}
    for part_id in part_ids:
        if part_id not in found:
            raise UnknownPart(part_id)
    parts = [found[part_id] for part_id in part_ids]
    num_bytes = sum(part["num_bytes"] for part in parts)
    if num_bytes != upload["num_bytes"]:
        raise WrongSize(num_bytes)
    return parts


async def copy_parts(
    files: FileStore, upload: StoredUpload, parts: Sequence[Mapping[str, Any]], md5: str | None
) -> dict[str, Any]:
    """Write parts into the content of a new file, a mebibyte at a time; return the file's row, to be recorded.

    Raises:
        WrongChecksum: the content has another MD5 checksum than `md5`.
        StoreUnavailable: the object store fails, or is full.
        ContentLost: a part is gone.
    """
    account_key = await files.vault.account_key(upload.account)
    digest = None if md5 is None else hashlib.md5(usedforsecurity=False)
    async with files.create(NewFile(upload.account, upload.key_id, f"file-{secrets.token_hex(16)}")) as file:
        for part in parts:
            key = account_key.open_object(part["part_id"], part["wrapped_key"])
            async for piece in ContentReader(files.objects, part, key).pieces(0, part["num_bytes"]):
                await file.write(piece)
                if digest is not None:
                    await asyncio.to_thread(digest.update, piece)
        if digest is not None and digest.hexdigest() != (md5 or "").lower():
            raise WrongChecksum
    now = files.clock()
    expires_at = now + upload.file_lifetime_s
    return file.row(purpose=upload.purpose, filename=upload.filename, created_at=now, expires_at=expires_at)


async def forget_parts(connection: AsyncConnection, upload_ids: Sequence[str]) -> Sequence[str]:
    """Delete the rows of the parts of uploads within the caller's transaction; return the keys of their objects."""
    belongs = upload_parts.c.upload_id.in_(upload_ids)
    object_keys = (await connection.scalars(select(upload_parts.c.object_key).where(belongs))).all()
    await connection.execute(delete(upload_parts).where(belongs))
    return object_keys
