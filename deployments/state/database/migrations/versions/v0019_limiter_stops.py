"""Whether a gatekeeper stopped in peace, so that its last snapshot is all there is."""

import sqlalchemy as sa
from alembic import op

revision = "v0019_limiter_stops"
down_revision = "v0018_webhooks"


def upgrade() -> None:
    """Add the column; without a value, the journal may have later changes."""
    for table in ("limiter_state", "region_limiter_state"):
        op.add_column(table, sa.Column("stopped", sa.JSON))
