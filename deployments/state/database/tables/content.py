"""The tables of files, uploads, batches, containers and vector stores. Content is sealed."""

from typing import Literal

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, String, Table, text

from deployments.state.database.tables.service import metadata

# A file's name is sealed, as its content is: `wrapped_key` opens both, and deleting the row destroys them.
files = Table(
    "files",
    metadata,
    Column("file_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("object_key", String(128), nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_name", LargeBinary, nullable=False),
    Index("ix_files_account", "account", "created_at", "file_id"),
    Index("ix_files_account_bytes", "account", "num_bytes"),  # The sum is read from it alone, while writers wait.
)

# Files that come in parts, each an object of its own until the upload ends. `completion` is the digest of the
# completing list of parts. The row is deleted at `kept_until`, later than `expires_at` while the parts are copied into
# a file.
uploads = Table(
    "uploads",
    metadata,
    Column("upload_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("received_bytes", BigInteger, nullable=False),
    Column("num_parts", Integer, nullable=False),
    Column("file_lifetime_s", Double, nullable=False),
    Column("file_id", String(64)),
    Column("completion", LargeBinary(32)),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("kept_until", Double, nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Index("ix_uploads_account", "account", "status"),
)

upload_parts = Table(
    "upload_parts",
    metadata,
    Column("part_id", String(64), primary_key=True),
    Column("upload_id", String(64), nullable=False, index=True),
    Column("num_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("object_key", String(128), nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
)

# The object stores that belong to this database, which hold the same marker; see objects.marker.
object_stores = Table(
    "object_stores",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("marker", String(64), nullable=False),
    Column("is_written", Boolean, nullable=False),
)

# The backlog of two object stores: objects that one still lacks, or has to delete. `token` changes with each note.
object_copies = Table(
    "object_copies",
    metadata,
    Column("store", String(16), primary_key=True),
    Column("object_key", String(255), primary_key=True),
    Column("is_deleted", Boolean, nullable=False),
    Column("since", Double, nullable=False),
    Column("token", String(32), nullable=False),
    Index("ix_object_copies_store_since", "store", "since"),
)

Status = Literal["validating", "in_progress", "finalizing", "cancelling", "completed", "failed", "expired", "cancelled"]
ENDED: tuple[Status, ...] = ("completed", "failed", "expired", "cancelled")

# `epoch` counts the claims of a batch; the holder of an older claim can change nothing.
# At `counted_at`, `elapsed_s` of the batch's time had passed; both are null before the first claim.
# `done` has a bit for each line whose outcome is in a segment. `wrapped_key` opens the sealed metadata.
batches = Table(
    "batches",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("principal", JSON, nullable=False),
    Column("endpoint", String(64), nullable=False),
    Column("input_file_id", String(64), nullable=False, index=True),
    Column("completion_window", String(8), nullable=False),
    Column("output_expires_after_s", Integer),
    Column("status", String(16), nullable=False, index=True),
    Column("errors", JSON(none_as_null=True)),
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    Column("created_at", Double, nullable=False),
    Column("in_progress_at", Double),
    Column("expires_at", Double, nullable=False),
    Column("finalizing_at", Double),
    Column("completed_at", Double),
    Column("failed_at", Double),
    Column("expired_at", Double),
    Column("cancelling_at", Double),
    Column("cancelled_at", Double),
    Column("paused_at", Double),
    Column("num_total", Integer, nullable=False),
    Column("num_completed", Integer, nullable=False),
    Column("num_failed", Integer, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("enqueued_tokens", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_until", Double, nullable=False),
    Column("elapsed_s", Double),
    Column("counted_at", Double),
    Column("done", LargeBinary, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_metadata", LargeBinary),
    Index("ix_batches_account", "account", "created_at", "batch_id"),
)

# Objects that hold outcomes of lines; `entries` are the lines and their places in it. Deleted when the batch ends.
batch_segments = Table(
    "batch_segments",
    metadata,
    Column("segment_id", String(64), primary_key=True),
    Column("batch_id", String(64), nullable=False, index=True),
    Column("epoch", BigInteger, nullable=False),
    Column("object_key", String(128), nullable=False, index=True),
    Column("num_bytes", BigInteger, nullable=False),
    Column("entries", LargeBinary, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
)

# Containers of the code interpreter. Their content is in the memory of a replica; its address is in the sealed record.
# A container ends after `idle_s` seconds without use.
containers = Table(
    "containers",
    metadata,
    Column("container_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("last_active_at", Double, nullable=False),
    Column("idle_s", Double, nullable=False),
    Column("has_ended", Boolean, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Index("ix_containers_account", "account", "created_at", "container_id"),
)

_IS_DUE = text("tidy_at IS NOT NULL")

# Vector stores, each of one embedding model. `revision` changes whenever a search may find something else. The index is
# tidied next at `tidy_at`; if it `is_dirty`, it has entries without a row.
# A deleted store keeps its row, without its key and its record, until its index is gone.
vector_stores = Table(
    "vector_stores",
    metadata,
    Column("store_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("embedding_model", String(256), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("last_active_at", Double, nullable=False),
    Column("expires_after_days", Integer),
    Column("expires_at", Double, index=True),
    Column("has_expired", Boolean, nullable=False),
    Column("is_deleted", Boolean, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("is_dirty", Boolean, nullable=False),
    Column("tidy_at", Double, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Index("ix_vector_stores_account", "account", "created_at", "store_id"),
    Index("ix_vector_stores_turns", "account", "tidy_at", sqlite_where=_IS_DUE, postgresql_where=_IS_DUE),
)


# The files in each store. `run_id` names the claim that indexes or has indexed a file: the holder of another claim may
# not write, and entries of another claim do not count. `wrapped_key` opens the sealed record and the file's index
# entries. `expires_at` is the file's own. `lacking` names the object store whose index lacks the entries. A file is
# indexed part by part. The index of the object store `indexed_in` has `num_indexed` of its chunks, which count while
# `lease_until` is negative: then no process works on the file. The tokens of `num_counted` chunks are counted.
vector_store_files = Table(
    "vector_store_files",
    metadata,
    Column("store_id", String(64), primary_key=True),
    Column("file_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("key_id", String(64), nullable=False, server_default=""),  # Empty where the version before wrote the row.
    Column("batch_id", String(64), index=True),
    Column("status", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("usage_bytes", BigInteger, nullable=False),
    Column("error_code", String(32)),
    Column("error_message", String(500)),
    Column("run_id", String(32), nullable=False),
    Column("num_claims", Integer, nullable=False),
    Column("num_indexed", Integer, nullable=False, server_default="0"),
    Column("num_counted", Integer, nullable=False, server_default="0"),
    Column("indexed_in", String(16), nullable=False, server_default=""),
    Column("lacking", String(16)),
    Column("lease_until", Double, nullable=False),
    Column("principal", JSON, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Index("ix_vector_store_files_order", "store_id", "created_at", "file_id"),
    Index("ix_vector_store_files_file", "file_id"),
    Index("ix_vector_store_files_work", "status", "lease_until"),
    Index("ix_vector_store_files_turns", "status", "key_id", "created_at", "file_id"),
)


vector_store_batches = Table(
    "vector_store_batches",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("store_id", String(64), nullable=False, index=True),
    Column("account", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("is_cancelled", Boolean, nullable=False),
)
