"""Since when a batch is paused; the latencies of an account are found without those of all others."""

import sqlalchemy as sa
from alembic import op

revision = "v0020_paused_batches"
down_revision = "v0019_limiter_stops"


def upgrade() -> None:
    """Add the column and the indexes."""
    op.add_column("batches", sa.Column("paused_at", sa.Double))
    for name in ("minutes", "hours", "days"):
        op.create_index(f"ix_latency_{name}_account", f"latency_{name}", ["account", "start"])
