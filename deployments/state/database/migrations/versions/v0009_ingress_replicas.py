"""Where ingress replicas listen."""

import sqlalchemy as sa
from alembic import op

revision = "v0009_ingress_replicas"
down_revision = "v0008_response_journal"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "ingress_replicas",
        sa.Column("address", sa.String(64), primary_key=True),
        sa.Column("seen_at", sa.Double, nullable=False, index=True),
    )
