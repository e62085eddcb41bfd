"""The tables of responses, chat completions, conversations and webhooks.

Content is small enough for the rows; deleting a row deletes its wrapped key.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, String, Table

from deployments.state.database.tables.service import metadata

# A turn is stored with its own items and the id of the turn before: continuing a chain reads every item once.
responses = Table(
    "responses",
    metadata,
    Column("response_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("previous_id", String(64), index=True),
    Column("status", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_items", LargeBinary, nullable=False),
    Column("sealed_response", LargeBinary, nullable=False),
    Index("ix_responses_account", "account", "created_at", "response_id"),
)


# The response of each item, for later requests that name the item.
response_items = Table(
    "response_items",
    metadata,
    Column("item_id", String(128), primary_key=True),
    Column("response_id", String(64), primary_key=True),
    Index("ix_response_items_response", "response_id"),
)


# A response that runs in the background. Its runner may write while it holds the newest epoch.
response_jobs = Table(
    "response_jobs",
    metadata,
    Column("response_id", String(64), primary_key=True),
    # Empty where the version before wrote the row.
    Column("account", String(64), nullable=False, server_default=""),
    Column("key_id", String(64), nullable=False, server_default=""),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_until", Double, nullable=False, index=True),
    Column("is_cancelled", Boolean, nullable=False),
    # Read by replicas of the version before, while they drain.
    Column("was_followed", Boolean, nullable=False, default=False),
    Column("num_events", Integer, nullable=False),
    Column("sealed_job", LargeBinary, nullable=False),
    Index("ix_response_jobs_turns", "key_id", "lease_until"),
)


response_events = Table(
    "response_events",
    metadata,
    Column("response_id", String(64), primary_key=True),
    Column("first", Integer, primary_key=True),
    Column("last", Integer, nullable=False),
    Column("sealed_events", LargeBinary, nullable=False),
    Column("sealed_journal", LargeBinary),  # Until the response has ended.
)


# A chat completion that was asked to be stored.
chat_completions = Table(
    "chat_completions",
    metadata,
    Column("completion_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("model", String(256), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_completion", LargeBinary, nullable=False),
    Column("sealed_messages", LargeBinary, nullable=False),
    Column("sealed_metadata", LargeBinary, nullable=False),
    Index("ix_chat_completions_account", "account", "created_at", "completion_id"),
)


# The pairs of their metadata, as digests under the account's key: lists are narrowed by them.
chat_completion_pairs = Table(
    "chat_completion_pairs",
    metadata,
    Column("completion_id", String(64), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Index("ix_chat_completion_pairs_digest", "digest"),
)


conversations = Table(
    "conversations",
    metadata,
    Column("conversation_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("next_position", BigInteger, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_metadata", LargeBinary, nullable=False),
    Index("ix_conversations_account", "account", "created_at", "conversation_id"),
)


conversation_items = Table(
    "conversation_items",
    metadata,
    Column("conversation_id", String(64), primary_key=True),
    Column("item_id", String(128), primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_item", LargeBinary, nullable=False),
    Index("ix_conversation_items_position", "conversation_id", "position"),
)

# Addresses that accounts want events at. `sealed_record` has the name and the address, `sealed_secret` signs
# deliveries; the previous secret signs too until `previous_until`. An endpoint that has failed for days is disabled
# until it is changed.
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

# Events that endpoints have not acknowledged. `due_at` is the next try. A process that tries one puts that off first,
# so that no other process does meanwhile, and that it is tried again if the process dies.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("event_id", String(64), primary_key=True),
    Column("endpoint_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False, server_default=""),  # Empty where the version before wrote the row.
    Column("type", String(64), nullable=False),
    Column("object_id", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("due_at", Double, nullable=False, index=True),
    Column("num_tries", Integer, nullable=False),
    Index("ix_webhook_deliveries_turns", "endpoint_id", "due_at"),
)
