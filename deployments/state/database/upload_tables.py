"""The tables of uploads in parts, in the same database as the others."""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, String, Table

from deployments.state.database.tables import metadata

# Files that come in parts, which are objects of their own until the upload ends. `completion` is the digest of the list
# that completed it; `kept_until` is when the row is deleted, later than `expires_at` while a file is put together.
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
