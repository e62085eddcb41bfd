"""Sessions of the console, links that open one, failed sign-ins, and the order of responses and conversations."""

import sqlalchemy as sa
from alembic import op

revision = "v0017_console"
down_revision = "v0016_usage_rollups"


def upgrade() -> None:
    """Create the tables."""
    for name in ("console_sessions", "console_links"):
        op.create_table(
            name,
            sa.Column("token_digest", sa.LargeBinary(32), primary_key=True),
            sa.Column("key_digest", sa.LargeBinary(32), nullable=False),
            sa.Column("expires_at", sa.Double, nullable=False, index=True),
        )
    op.create_table(
        "console_failures",
        sa.Column("address", sa.String(64), primary_key=True),
        sa.Column("minute", sa.BigInteger, primary_key=True),
        sa.Column("num_failed", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_responses_account", "responses", ["account", "created_at", "response_id"])
    op.create_index("ix_conversations_account", "conversations", ["account", "created_at", "conversation_id"])
