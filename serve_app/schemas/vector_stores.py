"""The bodies of the vector stores API."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from deployments.state.vector_stores.files import StoredStoreBatch
from deployments.state.vector_stores.rows import FileCounts, FileStatus, StoredStore, StoredStoreFile
from serve_app.schemas.base import Metadata, TwoWayQuery, WireModel, invalid, refusal
from serve_app.schemas.file_filters import Attributes

MAX_FILES_AT_CREATION = 500
MAX_FILES_IN_BATCH = 2000
AUTO_CHUNK_TOKENS = 800
AUTO_OVERLAP_TOKENS = 400

FileId = Annotated[str, Field(min_length=1, max_length=128)]


class StaticSizes(WireModel):
    """The size and the overlap of chunks.

    Args:
        max_chunk_size_tokens: the max tokens of a chunk.
        chunk_overlap_tokens: how many tokens neighbouring chunks share, at most half of a chunk.
    """

    max_chunk_size_tokens: Annotated[int, Field(ge=100, le=4096)]
    chunk_overlap_tokens: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.chunk_overlap_tokens > self.max_chunk_size_tokens // 2:
            raise invalid(
                "Invalid '{param}': the overlap must not be more than half of 'max_chunk_size_tokens'.",
                ".chunk_overlap_tokens",
            )
        return self


class AutoChunking(WireModel):
    """Chunks of the service's default size."""

    type: Literal["auto"]


class StaticChunking(WireModel):
    """Chunks of a size that the client sets."""

    type: Literal["static"]
    static: StaticSizes


Chunking = Annotated[AutoChunking | StaticChunking, Field(discriminator="type")]


class StoreExpiry(WireModel):
    """When a vector store expires, in days after its last use.

    Args:
        days: how many days after its last use the vector store expires.
    """

    anchor: Literal["last_active_at"]
    days: Annotated[int, Field(ge=1, le=365)]


class StoreCreateRequest(WireModel):
    """A vector store to be created, and the files to be put into it.

    Args:
        name: a name for the vector store.
        description: what the vector store is for.
        file_ids: uploaded files to put into it.
        chunking_strategy: how files are split into chunks. Left out, chunks of 800 tokens that overlap by 400.
    """

    example: ClassVar[dict[str, Any]] = {"name": "Handbook", "file_ids": ["FILE_ID"]}

    name: Annotated[str, Field(max_length=256)] | None = None
    description: Annotated[str, Field(max_length=512)] | None = None
    file_ids: Annotated[list[FileId], Field(fail_fast=True, max_length=MAX_FILES_AT_CREATION)] | None = None
    chunking_strategy: Chunking | None = None
    expires_after: StoreExpiry | None = None
    metadata: Metadata | None = None


class StoreUpdateRequest(WireModel):
    """A change of a vector store; null removes the expiry.

    Args:
        name: the new name.
        expires_after: the new expiry; null removes it.
    """

    example: ClassVar[dict[str, Any]] = {"name": "Handbook"}

    name: Annotated[str, Field(max_length=256)] | None = None
    expires_after: StoreExpiry | None = None
    metadata: Metadata | None = None


class StoreFileRequest(WireModel):
    """A file of the account to be put into a vector store.

    Args:
        file_id: the id of an uploaded file.
        attributes: up to 16 keys with texts, numbers or booleans, which searches can filter by.
        chunking_strategy: how the file is split into chunks.
    """

    example: ClassVar[dict[str, Any]] = {"file_id": "FILE_ID", "attributes": {"year": 2026}}

    file_id: FileId
    attributes: Attributes | None = None
    chunking_strategy: Chunking | None = None


class StoreFileUpdateRequest(WireModel):
    """Other attributes for a file in a vector store.

    Args:
        attributes: the new attributes, which replace all others.
    """

    example: ClassVar[dict[str, Any]] = {"attributes": {"year": 2026}}

    attributes: Attributes | None


class StoreFileQuery(TwoWayQuery):
    """The query of a list of the files in a vector store: those of one status, or all.

    Args:
        filter: only files with this status.
    """

    filter: FileStatus | None = None


class StoreBatchRequest(WireModel):
    """Files to be put into a vector store together, with common attributes or each with its own.

    Args:
        file_ids: the ids of uploaded files. Send either this or `files`.
        files: uploaded files, each with attributes and chunking of its own.
        attributes: attributes for all of `file_ids`.
        chunking_strategy: how all of `file_ids` are split into chunks.
    """

    example: ClassVar[dict[str, Any]] = {"file_ids": ["FILE_ID"]}

    file_ids: Annotated[list[FileId], Field(fail_fast=True, min_length=1, max_length=MAX_FILES_IN_BATCH)] | None = None
    files: (
        Annotated[list[StoreFileRequest], Field(fail_fast=True, min_length=1, max_length=MAX_FILES_IN_BATCH)] | None
    ) = None
    attributes: Attributes | None = None
    chunking_strategy: Chunking | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.file_ids is not None and self.files is not None:
            raise refusal(
                "mutually_exclusive_parameters",
                "Mutually exclusive parameters: 'file_ids' and 'files'. Send only one of them.",
                "files",
            )
        if self.file_ids is None and self.files is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", "file_ids")
        return self

    @property
    def wanted(self) -> list[StoreFileRequest]:
        """The files, each with its attributes and chunking."""
        if self.files is not None:
            return self.files
        return [
            StoreFileRequest(file_id=file_id, attributes=self.attributes, chunking_strategy=self.chunking_strategy)
            for file_id in self.file_ids or ()
        ]


def chunking_to_wire(chunking: AutoChunking | StaticChunking | None) -> dict[str, Any]:
    """Return a strategy for a client, always with its sizes."""
    if isinstance(chunking, StaticChunking):
        return chunking.model_dump()
    sizes = {"max_chunk_size_tokens": AUTO_CHUNK_TOKENS, "chunk_overlap_tokens": AUTO_OVERLAP_TOKENS}
    return {"type": "static", "static": sizes}


def store_to_wire(store: StoredStore) -> dict[str, Any]:
    """Return a vector store for a client."""
    days = store.expires_after_days
    status = "expired" if store.has_expired else "in_progress" if store.counts.in_progress else "completed"
    return {
        "id": store.store_id,
        "object": "vector_store",
        "created_at": int(store.created_at),
        "name": store.name,
        "description": store.description,
        "usage_bytes": store.usage_bytes,
        "file_counts": _counts_to_wire(store.counts),
        "status": status,
        "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
        "expires_at": None if store.expires_at is None else int(store.expires_at),
        "last_active_at": int(store.last_active_at),
        "metadata": dict(store.metadata),
    }


def store_file_to_wire(file: StoredStoreFile) -> dict[str, Any]:
    """Return a file in a vector store for a client."""
    return {
        "id": file.file_id,
        "object": "vector_store.file",
        "created_at": int(file.created_at),
        "vector_store_id": file.store_id,
        "status": file.status,
        "last_error": None if file.error is None else {"code": file.error[0], "message": file.error[1]},
        "usage_bytes": file.usage_bytes,
        "chunking_strategy": dict(file.chunking),
        "attributes": dict(file.attributes),
    }


def store_batch_to_wire(batch: StoredStoreBatch) -> dict[str, Any]:
    """Return a batch of files for a client."""
    status = "in_progress" if batch.counts.in_progress else "cancelled" if batch.is_cancelled else "completed"
    return {
        "id": batch.batch_id,
        "object": "vector_store.files_batch",
        "created_at": int(batch.created_at),
        "vector_store_id": batch.store_id,
        "status": status,
        "file_counts": _counts_to_wire(batch.counts),
    }


def _counts_to_wire(counts: FileCounts) -> dict[str, int]:
    return {**counts._asdict(), "total": sum(counts)}
