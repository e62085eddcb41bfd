"""Usage by minute, hour and day, latencies, the audit log, and what the request log did not hold of a request.

Rows of the request log without an operation were written by a version before this one: they are not in the sums yet,
and `usage.rollups` adds them. The usage by day of the version before, as far as the request log no longer reaches,
becomes days of chats, or without an operation where nothing was written.
"""

import sqlalchemy as sa
from alembic import op

revision = "v0016_usage_rollups"
down_revision = "v0015_limiter_regions"

_COUNTS = (
    "num_requests",
    "num_errors",
    "num_rate_limited",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "discounted_tokens",
    "file_search_calls",
    "web_search_calls",
    "code_sessions",
    "input_cost",
    "cached_cost",
    "output_cost",
)


def upgrade() -> None:
    """Create the tables and add the columns."""
    for name in ("minutes", "hours", "days"):
        _create_usage(f"usage_{name}")
        _create_latency(f"latency_{name}")
    op.create_table(
        "vector_store_bytes",
        sa.Column("width", sa.String(2), primary_key=True),
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account", sa.String(64), primary_key=True),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "audit_log",
        sa.Column("entry_id", sa.String(64), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("event", sa.String(64), nullable=False),
        sa.Column("actor_kind", sa.String(16), nullable=False),
        sa.Column("actor_id", sa.String(64), nullable=False),
        sa.Column("account", sa.String(64)),
        sa.Column("target", sa.String(128), nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
    )
    op.create_index("ix_audit_log_at", "audit_log", ["at", "entry_id"])
    op.add_column("request_log", sa.Column("operation", sa.String(32)))
    op.add_column("request_log", sa.Column("queued_s", sa.Double))
    for name in ("file_search_calls", "web_search_calls", "code_sessions", "input_cost", "cached_cost", "output_cost"):
        op.add_column("request_log", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("ix_request_log_account", "request_log", ["account", "at"])
    without_operation = sa.text("operation IS NULL")
    op.create_index(
        "ix_request_log_before",
        "request_log",
        ["record_id"],
        sqlite_where=without_operation,
        postgresql_where=without_operation,
    )
    _keep_old_days()


def _create_usage(name: str) -> None:
    op.create_table(
        name,
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account", sa.String(64), primary_key=True),
        sa.Column("key_id", sa.String(40), primary_key=True),
        sa.Column("model", sa.String(256), primary_key=True),
        sa.Column("operation", sa.String(32), primary_key=True),
        sa.Column("is_batch", sa.Boolean, primary_key=True),
        sa.Column("service_tier", sa.String(16), primary_key=True),
        *(sa.Column(count, sa.BigInteger, nullable=False) for count in _COUNTS),
        sqlite_with_rowid=False,
    )
    op.create_index(f"ix_{name}_account", name, ["account", "start"])


def _create_latency(name: str) -> None:
    op.create_table(
        name,
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account", sa.String(64), primary_key=True),
        sa.Column("model", sa.String(256), primary_key=True),
        sa.Column("metric", sa.String(8), primary_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )


def _keep_old_days() -> None:
    """Carry the usage by day over, less what is still in the request log and is added from there."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    start = "CAST(strftime('%s', u.day) AS BIGINT)" if is_sqlite else "EXTRACT(EPOCH FROM u.day)::BIGINT"
    day = "date(at, 'unixepoch')" if is_sqlite else "(to_timestamp(at) AT TIME ZONE 'UTC')::date"
    false = "0" if is_sqlite else "FALSE"
    operation = "CASE WHEN u.completion_tokens > 0 THEN 'chat' ELSE '' END"  # What wrote text was most likely a chat.
    old = ("num_requests", "num_errors", "prompt_tokens", "completion_tokens", "cached_tokens", "discounted_tokens")
    left = ", ".join(f"u.{name} - COALESCE(r.{name}, 0)" if name in old else "0" for name in _COUNTS)
    has_run = "status < 400 OR prompt_tokens > 0 OR completion_tokens > 0"
    logged = ", ".join(f"SUM({name}) AS {name}" for name in old[2:])
    op.execute(
        f"""INSERT INTO usage_days (start, account, key_id, model, operation, is_batch, service_tier,
            {", ".join(_COUNTS)})
        SELECT {start}, u.account, u.key_id, u.model, {operation}, {false}, '', {left}
        FROM usage u LEFT JOIN (
            SELECT key_id, {day} AS day, CASE WHEN {has_run} THEN COALESCE(model, '') ELSE '' END AS model,
                COUNT(*) AS num_requests, SUM(CASE WHEN status >= 400 THEN 1 ELSE 0 END) AS num_errors, {logged}
            FROM request_log WHERE key_id IS NOT NULL AND account IS NOT NULL GROUP BY 1, 2, 3
        ) r ON r.key_id = u.key_id AND r.day = u.day AND r.model = u.model
        WHERE u.num_requests > COALESCE(r.num_requests, 0)"""  # noqa: S608 - Every name is from this file.
    )
