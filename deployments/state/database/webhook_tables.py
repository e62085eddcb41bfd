"""The tables of webhooks, in the same database as the others."""

from sqlalchemy import JSON, Boolean, Column, Double, Index, Integer, LargeBinary, String, Table

from deployments.state.database.tables import metadata

# Where an account wants to hear of events. `sealed_record` has its name and address, `sealed_secret` what its
# deliveries are signed with; the previous secret signs too until `previous_until`. One that has failed for days is
# disabled until it is changed.
webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("endpoint_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("event_types", JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("failing_since", Double),
    Column("is_disabled", Boolean, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Column("sealed_secret", LargeBinary, nullable=False),
    Column("sealed_previous", LargeBinary),
    Column("previous_until", Double),
    Index("ix_webhook_endpoints_account", "account", "created_at"),
)

# Events that endpoints have not acknowledged. `due_at` is when one is tried next: whoever tries it puts that forward
# first, so that nobody else does meanwhile, and that it is tried again should the process die.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("event_id", String(64), primary_key=True),
    Column("endpoint_id", String(64), primary_key=True, index=True),
    Column("account", String(64), nullable=False, server_default=""),  # Empty where the version before wrote the row.
    Column("type", String(64), nullable=False),
    Column("object_id", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("due_at", Double, nullable=False, index=True),
    Column("num_tries", Integer, nullable=False),
    Index("ix_webhook_deliveries_turns", "endpoint_id", "due_at"),
)
