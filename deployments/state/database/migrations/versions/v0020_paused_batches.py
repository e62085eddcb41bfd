"""Since when a batch is paused."""

import sqlalchemy as sa
from alembic import op

revision = "v0020_paused_batches"
down_revision = "v0018_webhooks"


def upgrade() -> None:
    """Add the column."""
    op.add_column("batches", sa.Column("paused_at", sa.Double))
