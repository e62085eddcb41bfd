"""Which of two object stores lacks the index entries of a file in a vector store."""

import sqlalchemy as sa
from alembic import op

revision = "v0021_index_copies"
down_revision = "v0020_paused_batches"


def upgrade() -> None:
    """Add the column."""
    op.add_column("vector_store_files", sa.Column("lacking", sa.String(16)))
