"""Uploads in parts, and the parts that wait to become a file."""

import sqlalchemy as sa
from alembic import op

revision = "v0010_uploads"
down_revision = "v0009_ingress_replicas"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "uploads",
        sa.Column("upload_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("received_bytes", sa.BigInteger, nullable=False),
        sa.Column("num_parts", sa.Integer, nullable=False),
        sa.Column("file_lifetime_s", sa.Double, nullable=False),
        sa.Column("file_id", sa.String(64)),
        sa.Column("completion", sa.LargeBinary(32)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("kept_until", sa.Double, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_record", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_uploads_account", "uploads", ["account", "status"])
    op.create_index("ix_uploads_kept_until", "uploads", ["kept_until"])
    op.create_table(
        "upload_parts",
        sa.Column("part_id", sa.String(64), primary_key=True),
        sa.Column("upload_id", sa.String(64), nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("object_key", sa.String(128), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_upload_parts_upload_id", "upload_parts", ["upload_id"])
    op.create_index("ix_upload_parts_object_key", "upload_parts", ["object_key"])
