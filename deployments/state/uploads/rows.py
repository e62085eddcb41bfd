"""Uploads and their parts as values and rows, and the errors of a refused change. Times are Unix seconds."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.queries import clean_id, columns_for, id_groups
from deployments.state.database.tables.content import upload_parts
from deployments.state.encryption.sealing import DataKey
from deployments.state.files.content import ContentReader, NewFile
from deployments.state.files.store import FileStore

LIFETIME_S = 3600.0
"""How long parts may be added and the upload may be completed."""
MAX_PART_BYTES = 64 * 1024 * 1024
MAX_PARTS = 10_000
MAX_PENDING = 100
"""Uploads that one account may have pending."""

UploadStatus = Literal["pending", "completed", "cancelled", "expired"]

_RECORD = b"upload"


class NewUpload(NamedTuple):
    """An upload to be created. Its file lives `file_lifetime_s` seconds once it is complete."""

    account: str
    key_id: str
    purpose: str
    filename: str
    mime_type: str
    num_bytes: int
    file_lifetime_s: float


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """An upload; `num_bytes` is the size that its file must have."""

    upload_id: str
    account: str
    key_id: str
    purpose: str
    filename: str
    status: UploadStatus
    num_bytes: int
    file_lifetime_s: float
    file_id: str | None
    created_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of an upload."""

    part_id: str
    upload_id: str
    num_bytes: int
    created_at: float


class UploadNotFound(LookupError):
    """The account has no such upload."""


class UploadRefused(Exception):
    """The upload cannot be changed like that."""


class UploadEnded(UploadRefused):
    """The upload is not pending any more, but has another `status`."""

    def __init__(self, status: UploadStatus) -> None:
        super().__init__(f"The upload is {status}.")
        self.status = status


class UnknownPart(UploadRefused):
    """The upload has no part `part_id`."""

    def __init__(self, part_id: str) -> None:
        super().__init__("The upload has no such part.")
        self.part_id = part_id


class WrongSize(UploadRefused):
    """The parts hold `num_bytes` together, which is not the size of the upload."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__(f"The parts hold {num_bytes} bytes.")
        self.num_bytes = num_bytes


class WrongChecksum(UploadRefused):
    """The content of the parts has another MD5 checksum."""


class TooManyUploads(UploadRefused):
    """The account has too many pending uploads."""


class TooManyParts(UploadRefused):
    """The upload has too many parts, or they hold too much together."""


class NoRoom(UploadRefused):
    """The account's files would hold too much together."""


def seal_record(new: NewUpload, key: DataKey) -> bytes:
    """Return the sealed part of an upload's row."""
    return key.seal(orjson.dumps({"filename": new.filename, "mime_type": new.mime_type}), _RECORD)


def upload_of(row: Mapping[str, Any], key: DataKey, now: float) -> StoredUpload:
    """Return the upload in a row, expired if its time is over."""
    record = orjson.loads(key.open(row["sealed_record"], _RECORD))
    values = columns_for(StoredUpload, row) | {"filename": record["filename"], "status": status_of(row, now)}
    return StoredUpload(**values)


def status_of(row: Mapping[str, Any], now: float) -> UploadStatus:
    """Return the status of an upload, which expires without a change of its row."""
    status: UploadStatus = row["status"]
    return "expired" if status == "pending" and row["expires_at"] <= now else status


async def find_parts(database: Database, upload: Mapping[str, Any], part_ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the rows of an upload's parts, in this order; `upload` is its row.

    Raises:
        UnknownPart: it has no such part.
        WrongSize: together they do not have the size of the upload.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for ids in id_groups(part_ids):
        query = select(upload_parts).where(upload_parts.c.upload_id == upload["upload_id"])
        query = query.where(upload_parts.c.part_id.in_([clean_id(part_id) for part_id in ids]))
        rows = (await database.fetch(query)).mappings().all()
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
