"""Uploaded files, and batches with the segments of their output."""

import sqlalchemy as sa
from alembic import op

revision = "v0003_files_batches"
down_revision = "v0002_account_keys"


def upgrade() -> None:
    """Create the tables."""
    _create_files()
    _create_batches()
    _create_segments()


def _create_files() -> None:
    op.create_table(
        "files",
        sa.Column("file_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("object_key", sa.String(128), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_name", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_files_expires_at", "files", ["expires_at"])
    op.create_index("ix_files_object_key", "files", ["object_key"])
    op.create_index("ix_files_account", "files", ["account", "created_at", "file_id"])


def _create_batches() -> None:
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("principal", sa.JSON, nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("input_file_id", sa.String(64), nullable=False),
        sa.Column("completion_window", sa.String(8), nullable=False),
        sa.Column("output_expires_after_s", sa.Integer),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("errors", sa.JSON),
        sa.Column("output_file_id", sa.String(64)),
        sa.Column("error_file_id", sa.String(64)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("in_progress_at", sa.Double),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("finalizing_at", sa.Double),
        sa.Column("completed_at", sa.Double),
        sa.Column("failed_at", sa.Double),
        sa.Column("expired_at", sa.Double),
        sa.Column("cancelling_at", sa.Double),
        sa.Column("cancelled_at", sa.Double),
        sa.Column("num_total", sa.Integer, nullable=False),
        sa.Column("num_completed", sa.Integer, nullable=False),
        sa.Column("num_failed", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("enqueued_tokens", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lease_until", sa.Double, nullable=False),
        sa.Column("done", sa.LargeBinary, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_metadata", sa.LargeBinary),
    )
    op.create_index("ix_batches_input_file_id", "batches", ["input_file_id"])
    op.create_index("ix_batches_status", "batches", ["status"])
    op.create_index("ix_batches_account", "batches", ["account", "created_at", "batch_id"])


def _create_segments() -> None:
    op.create_table(
        "batch_segments",
        sa.Column("segment_id", sa.String(64), primary_key=True),
        sa.Column("batch_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("object_key", sa.String(128), nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("entries", sa.LargeBinary, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_batch_segments_batch_id", "batch_segments", ["batch_id"])
    op.create_index("ix_batch_segments_object_key", "batch_segments", ["object_key"])
