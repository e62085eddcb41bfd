"""The table of the audit log, to which rows are only added."""

from sqlalchemy import JSON, Column, Double, Index, String, Table

from deployments.state.database.tables import metadata

audit_log = Table(
    "audit_log",
    metadata,
    Column("entry_id", String(64), primary_key=True),
    Column("at", Double, nullable=False),
    Column("event", String(64), nullable=False),
    Column("actor_kind", String(16), nullable=False),
    Column("actor_id", String(64), nullable=False),
    Column("account", String(64)),
    Column("target", String(128), nullable=False),
    Column("details", JSON, nullable=False),
    Index("ix_audit_log_at", "at", "entry_id"),
)
