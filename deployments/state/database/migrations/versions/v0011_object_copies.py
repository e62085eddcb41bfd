"""Objects that one of two object stores lacks, or still has to delete."""

import sqlalchemy as sa
from alembic import op

revision = "v0011_object_copies"
down_revision = "v0010_uploads"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "object_copies",
        sa.Column("store", sa.String(16), primary_key=True),
        sa.Column("object_key", sa.String(255), primary_key=True),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("token", sa.String(32), nullable=False),
    )
    op.create_index("ix_object_copies_store_since", "object_copies", ["store", "since"])
