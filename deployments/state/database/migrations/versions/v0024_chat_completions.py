"""Chat completions can be stored, and found by their metadata."""

import sqlalchemy as sa
from alembic import op

revision = "v0024_chat_completions"
down_revision = "v0023_request_param"


def upgrade() -> None:
    """Create the tables of chat completions, and of the digests of their metadata."""
    op.create_table(
        "chat_completions",
        sa.Column("completion_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_completion", sa.LargeBinary, nullable=False),
        sa.Column("sealed_messages", sa.LargeBinary, nullable=False),
        sa.Column("sealed_metadata", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_chat_completions_expires_at", "chat_completions", ["expires_at"])
    op.create_index("ix_chat_completions_account", "chat_completions", ["account", "created_at", "completion_id"])
    op.create_table(
        "chat_completion_pairs",
        sa.Column("completion_id", sa.String(64), primary_key=True),
        sa.Column("digest", sa.LargeBinary, primary_key=True),
    )
    op.create_index("ix_chat_completion_pairs_digest", "chat_completion_pairs", ["digest"])
