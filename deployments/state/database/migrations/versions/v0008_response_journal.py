"""The journal of a background response, so that another replica can continue it."""

import sqlalchemy as sa
from alembic import op

revision = "v0008_response_journal"
down_revision = "v0007_batch_time_store_marker"


def upgrade() -> None:
    """Add the column."""
    op.add_column("response_events", sa.Column("sealed_journal", sa.LargeBinary))
