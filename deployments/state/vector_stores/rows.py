"""Vector stores, their files and batches as values, and the changes of their rows that belong into other transactions.

What a caller wrote (names, metadata, attributes) is sealed; ids, sizes, times and states are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson
from sqlalchemy import and_, case, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.tables import vector_store_files as files
from deployments.state.database.tables import vector_stores as stores
from deployments.state.encryption.sealing import AccountKey, DataKey
from deployments.state.identity.principal import Principal

FileStatus = Literal["in_progress", "completed", "cancelled", "failed"]
ErrorCode = Literal["server_error", "unsupported_file", "invalid_file"]
Attributes = dict[str, str | float | bool]

_STORE = b"vector store"
_FILE = b"vector store file"
_TERMS = b"vector store terms"
_AT_ONCE = 400


class StoreMissing(LookupError):
    """The account has no such vector store."""


class StoreFileMissing(LookupError):
    """The vector store has no such file."""


class StoreBatchMissing(LookupError):
    """The vector store has no such batch of files."""


class StoreHasExpired(Exception):
    """The vector store has expired: it can be looked at and deleted, nothing else."""


class StoreFull(Exception):
    """There are as many stores, or files in one, as there may be."""


class FileCounts(NamedTuple):
    """How many files are in each state."""

    in_progress: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class NewStore:
    """A vector store to be made; `expires_after_days` counts from its last use."""

    store_id: str
    account: str
    embedding_model: str
    name: str = ""
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    expires_after_days: int | None = None


@dataclass(frozen=True, slots=True)
class StoredStore:
    """What is known of a vector store. Times are Unix seconds; `terms_key` hides the words in its index."""

    store_id: str
    account: str
    embedding_model: str
    name: str
    description: str | None
    metadata: Mapping[str, str]
    created_at: float
    last_active_at: float
    expires_after_days: int | None
    expires_at: float | None
    has_expired: bool
    revision: int
    terms_key: bytes = field(repr=False)
    usage_bytes: int = 0
    counts: FileCounts = field(default_factory=FileCounts)


@dataclass(frozen=True, slots=True)
class NewStoreFile:
    """A file of the account that is to be in a store; `chunking` is its strategy as clients know it."""

    file_id: str
    filename: str
    expires_at: float
    chunking: Mapping[str, Any]
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredStoreFile:
    """What is known of a file in a store; `key` opens what the index holds of it, under `run_id`."""

    store_id: str
    file_id: str
    account: str
    status: FileStatus
    created_at: float
    expires_at: float
    usage_bytes: int
    error: tuple[str, str] | None
    run_id: str
    filename: str
    chunking: Mapping[str, Any]
    attributes: Attributes
    key: DataKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file that the caller indexes, for the holder of the key that put it into the store."""

    file: StoredStoreFile
    principal: Principal


def seal_store(key: DataKey, name: str, description: str | None, metadata: Mapping[str, str]) -> bytes:
    """Return a store's record, sealed."""
    return key.seal(orjson.dumps([name, description, dict(metadata)]), _STORE)


def open_store(row: Mapping[str, Any], account_key: AccountKey, now: float) -> StoredStore:
    """Return the store of a row."""
    key = account_key.open_object(row["store_id"], row["wrapped_key"])
    name, description, metadata = orjson.loads(key.open(row["sealed_record"], _STORE))
    expires_at = row["expires_at"]
    return StoredStore(
        store_id=row["store_id"],
        account=row["account"],
        embedding_model=row["embedding_model"],
        name=name,
        description=description,
        metadata=metadata,
        created_at=row["created_at"],
        last_active_at=row["last_active_at"],
        expires_after_days=row["expires_after_days"],
        expires_at=expires_at,
        has_expired=row["has_expired"] or (expires_at is not None and expires_at <= now),
        revision=row["revision"],
        terms_key=key.derive(_TERMS),
    )


def file_key_id(store_id: str, file_id: str) -> str:
    """Return what the key of a file in a store is bound to."""
    return f"{store_id}/{file_id}"


def seal_file(key: DataKey, filename: str, chunking: Mapping[str, Any], attributes: Attributes) -> bytes:
    """Return the record of a file in a store, sealed."""
    return key.seal(orjson.dumps([filename, dict(chunking), attributes]), _FILE)


def open_file(row: Mapping[str, Any], account_key: AccountKey) -> StoredStoreFile:
    """Return the file of a row."""
    key = account_key.open_object(file_key_id(row["store_id"], row["file_id"]), row["wrapped_key"])
    filename, chunking, attributes = orjson.loads(key.open(row["sealed_record"], _FILE))
    return StoredStoreFile(
        store_id=row["store_id"],
        file_id=row["file_id"],
        account=row["account"],
        status=row["status"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        usage_bytes=row["usage_bytes"],
        error=(row["error_code"], row["error_message"]) if row["error_code"] is not None else None,
        run_id=row["run_id"],
        filename=filename,
        chunking=chunking,
        attributes=attributes,
        key=key,
    )


async def note_change(connection: AsyncConnection, store_ids: Sequence[str], now: float, **values: Any) -> None:
    """Have stores tidied, since something in their index counts no more, or counts now.

    One that waits for that already goes on waiting from when it began to.
    """
    has_waited = and_(stores.c.is_dirty, stores.c.tidy_at < now)
    tidy_at = case((has_waited, stores.c.tidy_at), else_=now)
    changed = {"revision": stores.c.revision + 1, "is_dirty": True, "tidy_at": tidy_at, **values}
    for start in range(0, len(store_ids), _AT_ONCE):
        some = store_ids[start : start + _AT_ONCE]
        await connection.execute(update(stores).where(stores.c.store_id.in_(some)).values(changed))


async def forget_files(connection: AsyncConnection, file_ids: Sequence[str], now: float) -> None:
    """Take files out of every store: their keys are gone at once, what the index holds of them soon."""
    for start in range(0, len(file_ids), _AT_ONCE):
        among = files.c.file_id.in_(file_ids[start : start + _AT_ONCE])
        holders = (await connection.scalars(select(files.c.store_id).where(among).distinct())).all()
        if holders:
            await connection.execute(delete(files).where(among))
            await note_change(connection, holders, now)
