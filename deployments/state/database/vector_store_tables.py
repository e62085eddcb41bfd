"""The tables of vector stores; content is sealed."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    text,
)

from deployments.state.database.tables import metadata

_IS_DUE = text("tidy_at IS NOT NULL")

# Vector stores, each of one embedding model. `revision` changes with what a search can find. The index is tidied next
# at `tidy_at`, and then holds entries without a row if `is_dirty`.
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


# The files in each store. `run_id` names the claim under which a file is or was indexed: the holder of another claim
# may write nothing, and index entries of another claim do not count. `wrapped_key` opens the sealed record and the
# file's index entries. `expires_at` is the file's own. `lacking` names the object store whose index lacks the entries.
# A file is indexed part by part. `num_indexed` of its chunks are in the index of the object store `indexed_in`, and
# count as long as `lease_until` is negative: then nobody works on the file. The tokens of `num_counted` are counted.
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
