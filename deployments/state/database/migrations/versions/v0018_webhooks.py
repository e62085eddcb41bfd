"""Webhook endpoints, and the events that they have not acknowledged."""

import sqlalchemy as sa
from alembic import op

revision = "v0018_webhooks"
down_revision = "v0017_console"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("endpoint_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("event_types", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("failing_since", sa.Double),
        sa.Column("is_disabled", sa.Boolean, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_record", sa.LargeBinary, nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary, nullable=False),
        sa.Column("sealed_previous", sa.LargeBinary),
        sa.Column("previous_until", sa.Double),
    )
    op.create_index("ix_webhook_endpoints_account", "webhook_endpoints", ["account", "created_at"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("event_id", sa.String(64), primary_key=True),
        sa.Column("endpoint_id", sa.String(64), primary_key=True),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("object_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("num_tries", sa.Integer, nullable=False),
    )
    op.create_index("ix_webhook_deliveries_endpoint_id", "webhook_deliveries", ["endpoint_id"])
    op.create_index("ix_webhook_deliveries_due_at", "webhook_deliveries", ["due_at"])
