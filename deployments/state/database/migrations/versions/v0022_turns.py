"""Accounts take turns at work in the background, a file is indexed part by part, and files are summed by an index."""

import sqlalchemy as sa
from alembic import op

revision = "v0022_turns"
down_revision = "v0021_index_copies"
UNUSED = ("usage", "ix_request_log_before", "ix_webhook_deliveries_endpoint_id")
"""What the version before kept for the one before it, and an index that is the beginning of a new one."""


def upgrade() -> None:
    """Create the table of turns; give each queue the columns and the index by which turns are taken."""
    op.drop_table("usage")
    op.drop_index("ix_request_log_before", "request_log")
    op.drop_index("ix_webhook_deliveries_endpoint_id", "webhook_deliveries")
    op.create_index("ix_files_account_bytes", "files", ["account", "num_bytes"])
    op.create_table(
        "work_turns",
        sa.Column("queue", sa.String(16), primary_key=True),
        sa.Column("account", sa.String(64), primary_key=True),
        sa.Column("lane", sa.String(64), primary_key=True),
        sa.Column("turn", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_work_turns_turn", "work_turns", ["queue", "turn"])
    for table, name in (
        ("vector_store_files", "key_id"),
        ("response_jobs", "account"),
        ("response_jobs", "key_id"),
        ("webhook_deliveries", "account"),
    ):
        op.add_column(table, sa.Column(name, sa.String(64), nullable=False, server_default=""))
    for name in ("num_indexed", "num_counted"):
        op.add_column("vector_store_files", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.add_column("vector_store_files", sa.Column("indexed_in", sa.String(16), nullable=False, server_default=""))

    files = sa.table("vector_store_files", sa.column("key_id"), sa.column("status"), sa.column("principal", sa.JSON))
    key_id = files.c.principal["key_id"].as_string()
    op.execute(sa.update(files).where(files.c.status == "in_progress").values(key_id=key_id))
    op.execute(
        "UPDATE response_jobs SET account = (SELECT responses.account FROM responses "
        "WHERE responses.response_id = response_jobs.response_id) "
        "WHERE response_id IN (SELECT response_id FROM responses)"
    )
    op.execute(
        "UPDATE webhook_deliveries SET account = (SELECT webhook_endpoints.account FROM webhook_endpoints "
        "WHERE webhook_endpoints.endpoint_id = webhook_deliveries.endpoint_id) "
        "WHERE endpoint_id IN (SELECT endpoint_id FROM webhook_endpoints)"
    )

    turns = {
        "vector_store_files": ["status", "key_id", "created_at", "file_id"],
        "response_jobs": ["key_id", "lease_until"],
        "webhook_deliveries": ["endpoint_id", "due_at"],
    }
    for table, columns in turns.items():
        op.create_index(f"ix_{table}_turns", table, columns)
    is_due = sa.text("tidy_at IS NOT NULL")
    columns = ["account", "tidy_at"]
    op.create_index("ix_vector_stores_turns", "vector_stores", columns, sqlite_where=is_due, postgresql_where=is_due)
