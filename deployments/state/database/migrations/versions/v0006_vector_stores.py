"""Vector stores, the files in them, and batches of those."""

import sqlalchemy as sa
from alembic import op

revision = "v0006_vector_stores"
down_revision = "v0005_containers"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "vector_stores",
        sa.Column("store_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("embedding_model", sa.String(256), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_active_at", sa.Double, nullable=False),
        sa.Column("expires_after_days", sa.Integer),
        sa.Column("expires_at", sa.Double),
        sa.Column("has_expired", sa.Boolean, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("is_dirty", sa.Boolean, nullable=False),
        sa.Column("tidy_at", sa.Double),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_record", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_vector_stores_account", "vector_stores", ["account", "created_at", "store_id"])
    op.create_index("ix_vector_stores_expires_at", "vector_stores", ["expires_at"])
    op.create_index("ix_vector_stores_tidy_at", "vector_stores", ["tidy_at"])
    op.create_table(
        "vector_store_files",
        sa.Column("store_id", sa.String(64), primary_key=True),
        sa.Column("file_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("batch_id", sa.String(64)),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("usage_bytes", sa.BigInteger, nullable=False),
        sa.Column("error_code", sa.String(32)),
        sa.Column("error_message", sa.String(500)),
        sa.Column("run_id", sa.String(32), nullable=False),
        sa.Column("num_claims", sa.Integer, nullable=False),
        sa.Column("lease_until", sa.Double, nullable=False),
        sa.Column("principal", sa.JSON, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_record", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_vector_store_files_order", "vector_store_files", ["store_id", "created_at", "file_id"])
    op.create_index("ix_vector_store_files_file", "vector_store_files", ["file_id"])
    op.create_index("ix_vector_store_files_work", "vector_store_files", ["status", "lease_until"])
    op.create_index("ix_vector_store_files_batch_id", "vector_store_files", ["batch_id"])
    op.create_index("ix_vector_store_files_expires_at", "vector_store_files", ["expires_at"])
    op.create_table(
        "vector_store_batches",
        sa.Column("batch_id", sa.String(64), primary_key=True),
        sa.Column("store_id", sa.String(64), nullable=False),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("is_cancelled", sa.Boolean, nullable=False),
    )
    op.create_index("ix_vector_store_batches_store_id", "vector_store_batches", ["store_id"])
