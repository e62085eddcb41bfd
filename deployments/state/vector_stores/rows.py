"""Vector stores and their files as values, and changes of their rows within other transactions.

Content of clients (names, metadata, attributes) is sealed; ids, sizes, times and statuses are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson
from sqlalchemy import and_, case, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.queries import columns_for, id_groups
from deployments.state.database.tables.content import vector_store_files as files
from deployments.state.database.tables.content import vector_stores as stores
from deployments.state.encryption.sealing import AccountKey, DataKey
from deployments.state.identity.principal import Principal

FileStatus = Literal["in_progress", "completed", "cancelled", "failed"]
ErrorCode = Literal["server_error", "unsupported_file", "invalid_file"]
Attributes = dict[str, str | float | bool]

_STORE = b"vector store"
_FILE = b"vector store file"
_TERMS = b"vector store terms"


class StoreMissing(LookupError):
    """The account has no such vector store."""


class StoreFileMissing(LookupError):
    """The vector store has no such file."""


class StoreBatchMissing(LookupError):
    """The vector store has no such batch of files."""


class StoreHasExpired(Exception):
    """The vector store has expired: it can be shown and deleted, nothing else."""


class StoreFull(Exception):
    """The limit of stores, or of files in a store, is reached."""


class FileCounts(NamedTuple):
    """The number of files of each status."""

    in_progress: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class NewStore:
    """A vector store to be created; `expires_after_days` counts from its last use."""

    store_id: str
    account: str
    embedding_model: str
    name: str = ""
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    expires_after_days: int | None = None


@dataclass(frozen=True, slots=True)
class StoredStore:
    """A stored vector store. Times are Unix seconds; `terms_key` encodes the words in its index."""

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
    """A file of the account for a store; `chunking` is its strategy, in the form that clients use."""

    file_id: str
    filename: str
    expires_at: float
    chunking: Mapping[str, Any]
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredStoreFile:
    """A file in a store; `key` opens its entries in the index, which are written under `run_id`.

    `lacking` is the name of the object store whose index lacks them, if any. While the file is being indexed, the index
    of the object store `indexed_in` has `num_indexed` of its chunks, and the tokens of the first `num_counted` are
    counted.
    """

    store_id: str
    file_id: str
    account: str
    status: FileStatus
    created_at: float
    expires_at: float
    usage_bytes: int
    error: tuple[str, str] | None
    run_id: str
    num_indexed: int
    num_counted: int
    indexed_in: str
    lacking: str | None
    filename: str
    chunking: Mapping[str, Any]
    attributes: Attributes
    key: DataKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file that the caller indexes, and the principal that put it into the store."""

    file: StoredStoreFile
    principal: Principal


def seal_store(key: DataKey, name: str, description: str | None, metadata: Mapping[str, str]) -> bytes:
    """Return a store's record, sealed."""
    return key.seal(orjson.dumps([name, description, dict(metadata)]), _STORE)


def open_store(row: Mapping[str, Any], account_key: AccountKey, now: float) -> StoredStore:
    """Return the store in a row."""
    key = account_key.open_object(row["store_id"], row["wrapped_key"])
    name, description, metadata = orjson.loads(key.open(row["sealed_record"], _STORE))
    opened = {"name": name, "description": description, "metadata": metadata, "terms_key": key.derive(_TERMS)}
    expires_at = row["expires_at"]
    has_expired = row["has_expired"] or (expires_at is not None and expires_at <= now)
    return StoredStore(**columns_for(StoredStore, row) | opened | {"has_expired": has_expired})


def file_key_id(store_id: str, file_id: str) -> str:
    """Return the id under which the key of a file in a store is wrapped."""
    return f"{store_id}/{file_id}"


def seal_file(key: DataKey, filename: str, chunking: Mapping[str, Any], attributes: Attributes) -> bytes:
    """Return the record of a file in a store, sealed."""
    return key.seal(orjson.dumps([filename, dict(chunking), attributes]), _FILE)


def open_file(row: Mapping[str, Any], account_key: AccountKey) -> StoredStoreFile:
    """Return the file in a row."""
    key = account_key.open_object(file_key_id(row["store_id"], row["file_id"]), row["wrapped_key"])
    filename, chunking, attributes = orjson.loads(key.open(row["sealed_record"], _FILE))
    return StoredStoreFile(
        **columns_for(StoredStoreFile, row),
        error=(row["error_code"], row["error_message"]) if row["error_code"] is not None else None,
        filename=filename,
        chunking=chunking,
        attributes=attributes,
        key=key,
    )


async def note_change(connection: AsyncConnection, store_ids: Sequence[str], now: float, **values: Any) -> None:
    """Schedule the tidying of stores whose index has entries that begin or cease to count.

    A store that already waits for its tidying keeps its place.
    """
    has_waited = and_(stores.c.is_dirty, stores.c.tidy_at < now)
    tidy_at = case((has_waited, stores.c.tidy_at), else_=now)
    changed = {"revision": stores.c.revision + 1, "is_dirty": True, "tidy_at": tidy_at, **values}
    for group in id_groups(store_ids):
        await connection.execute(update(stores).where(stores.c.store_id.in_(group)).values(changed))


async def forget_files(connection: AsyncConnection, file_ids: Sequence[str], now: float) -> None:
    """Remove files from every store: their keys are deleted at once, their index entries at the next tidying."""
    for group in id_groups(file_ids):
        among = files.c.file_id.in_(group)
        holders = (await connection.scalars(select(files.c.store_id).where(among).distinct())).all()
        if holders:
            await connection.execute(delete(files).where(among))
            await note_change(connection, holders, now)
