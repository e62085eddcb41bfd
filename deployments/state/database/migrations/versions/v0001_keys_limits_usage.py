"""API keys, the request log, usage per day, and what the gatekeeper remembers across a restart."""

import sqlalchemy as sa
from alembic import op

revision = "v0001_keys_limits_usage"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "revisions",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO revisions (name, value) VALUES ('api_keys', 0)")
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("organization", sa.String(64), nullable=False),
        sa.Column("tier", sa.String(16), nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("operations", sa.JSON),
        sa.Column("models", sa.JSON),
        sa.Column("retention", sa.String(16), nullable=False),
        sa.Column("is_admin", sa.Boolean, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("prefix", sa.String(16), nullable=False),
        sa.Column("last_four", sa.String(4), nullable=False),
        sa.Column("previous_digest", sa.LargeBinary(32), unique=True),
        sa.Column("previous_expires_at", sa.Double),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("rotated_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.Column("expires_at", sa.Double),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_api_keys_account", "api_keys", ["account", "created_at"])
    op.create_index("ix_api_keys_revision", "api_keys", ["revision"])
    _create_usage_tables()
    _create_limiter_tables()


def _create_usage_tables() -> None:
    op.create_table(
        "request_log",
        sa.Column("record_id", sa.String(64), primary_key=True),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("key_id", sa.String(40)),
        sa.Column("account", sa.String(64)),
        sa.Column("tier", sa.String(16)),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("route", sa.String(128), nullable=False),
        sa.Column("model", sa.String(256)),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("code", sa.String(64)),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("ttft_s", sa.Double),
        sa.Column("total_s", sa.Double, nullable=False),
    )
    op.create_index("ix_request_log_key", "request_log", ["key_id", "at"])
    op.create_index("ix_request_log_at", "request_log", ["at"])
    op.create_table(
        "usage",
        sa.Column("key_id", sa.String(40), primary_key=True),
        sa.Column("day", sa.Date, primary_key=True),
        sa.Column("model", sa.String(256), primary_key=True),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("num_requests", sa.BigInteger, nullable=False),
        sa.Column("num_errors", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_usage_account", "usage", ["account", "day"])
    op.create_index("ix_usage_day", "usage", ["day"])


def _create_limiter_tables() -> None:
    op.create_table(
        "limiter_state",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("journal", sa.String(40), nullable=False),
        sa.Column("segment", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "limiter_charges",
        sa.Column("key_id", sa.String(40), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("requests", sa.LargeBinary, nullable=False),
        sa.Column("tokens", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_limiter_charges_at", "limiter_charges", ["at"])
