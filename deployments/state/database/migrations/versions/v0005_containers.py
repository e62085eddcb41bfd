"""Containers of the code interpreter."""

import sqlalchemy as sa
from alembic import op

revision = "v0005_containers"
down_revision = "v0004_responses"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "containers",
        sa.Column("container_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_active_at", sa.Double, nullable=False),
        sa.Column("idle_s", sa.Double, nullable=False),
        sa.Column("has_ended", sa.Boolean, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_record", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_containers_account", "containers", ["account", "created_at", "container_id"])
    op.create_index("ix_containers_expires_at", "containers", ["expires_at"])
