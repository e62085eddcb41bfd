"""Stored responses, those that run in the background, and conversations."""

import sqlalchemy as sa
from alembic import op

revision = "v0004_responses"
down_revision = "v0003_files_batches"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "responses",
        sa.Column("response_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("previous_id", sa.String(64)),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_items", sa.LargeBinary, nullable=False),
        sa.Column("sealed_response", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_responses_previous_id", "responses", ["previous_id"])
    op.create_index("ix_responses_expires_at", "responses", ["expires_at"])
    op.create_table(
        "response_items",
        sa.Column("item_id", sa.String(128), primary_key=True),
        sa.Column("response_id", sa.String(64), primary_key=True),
    )
    op.create_index("ix_response_items_response", "response_items", ["response_id"])
    _create_background_tables()
    _create_conversation_tables()


def _create_background_tables() -> None:
    op.create_table(
        "response_jobs",
        sa.Column("response_id", sa.String(64), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lease_until", sa.Double, nullable=False),
        sa.Column("is_cancelled", sa.Boolean, nullable=False),
        sa.Column("was_followed", sa.Boolean, nullable=False),
        sa.Column("num_events", sa.Integer, nullable=False),
        sa.Column("sealed_job", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_response_jobs_lease_until", "response_jobs", ["lease_until"])
    op.create_table(
        "response_events",
        sa.Column("response_id", sa.String(64), primary_key=True),
        sa.Column("first", sa.Integer, primary_key=True),
        sa.Column("last", sa.Integer, nullable=False),
        sa.Column("sealed_events", sa.LargeBinary, nullable=False),
    )


def _create_conversation_tables() -> None:
    op.create_table(
        "conversations",
        sa.Column("conversation_id", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("next_position", sa.BigInteger, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_metadata", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_conversations_expires_at", "conversations", ["expires_at"])
    op.create_table(
        "conversation_items",
        sa.Column("conversation_id", sa.String(64), primary_key=True),
        sa.Column("item_id", sa.String(128), primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed_item", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_conversation_items_position", "conversation_items", ["conversation_id", "position"])
