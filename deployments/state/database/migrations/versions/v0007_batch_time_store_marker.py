"""How much of a batch's time has passed, and the marker of the object store that belongs to the database."""

import sqlalchemy as sa
from alembic import op

revision = "v0007_batch_time_store_marker"
down_revision = "v0006_vector_stores"


def upgrade() -> None:
    """Add the columns, and create the table."""
    op.add_column("batches", sa.Column("elapsed_s", sa.Double))
    op.add_column("batches", sa.Column("counted_at", sa.Double))
    op.create_table(
        "object_stores",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("marker", sa.String(64), nullable=False),
        sa.Column("is_written", sa.Boolean, nullable=False),
    )
