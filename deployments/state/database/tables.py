"""The tables of the metadata database. Times are Unix seconds; content is sealed, in columns named `sealed_...`."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Date,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

metadata = MetaData()

# One row for each kind of row that other processes follow; every change takes the next number in its transaction.
revisions = Table(
    "revisions",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", String(40), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("account", String(64), nullable=False),
    Column("organization", String(64), nullable=False),
    Column("tier", String(16), nullable=False),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("operations", JSON(none_as_null=True)),
    Column("models", JSON(none_as_null=True)),
    Column("regions", JSON(none_as_null=True)),
    Column("retention", String(16), nullable=False),
    Column("is_admin", Boolean, nullable=False),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("prefix", String(16), nullable=False),
    Column("last_four", String(4), nullable=False),
    Column("previous_digest", LargeBinary(32), unique=True),
    Column("previous_expires_at", Double),
    Column("created_at", Double, nullable=False),
    Column("rotated_at", Double),
    Column("revoked_at", Double),
    Column("expires_at", Double),
    Column("revision", BigInteger, nullable=False, index=True),
    Index("ix_api_keys_account", "account", "created_at"),
)

# `record_id` is the id of the request, which the front or the ingress gave it, or comes from a batch and the number of
# its line, never from a client: a request that is recorded twice is counted once.
request_log = Table(
    "request_log",
    metadata,
    Column("record_id", String(64), primary_key=True),
    Column("request_id", String(128), nullable=False),
    Column("at", Double, nullable=False, index=True),
    Column("key_id", String(40)),
    Column("account", String(64)),
    Column("tier", String(16)),
    Column("method", String(16), nullable=False),
    Column("route", String(128), nullable=False),
    Column("model", String(256)),
    Column("status", Integer, nullable=False),
    Column("code", String(64)),
    Column("stream", Boolean, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("ttft_s", Double),
    Column("total_s", Double, nullable=False),
    Column("service_tier", String(16)),
    Column("discounted_tokens", BigInteger, nullable=False, server_default="0"),
    Column("operation", String(32)),
    Column("queued_s", Double),
    Column("file_search_calls", BigInteger, nullable=False, server_default="0"),
    Column("web_search_calls", BigInteger, nullable=False, server_default="0"),
    Column("code_sessions", BigInteger, nullable=False, server_default="0"),
    Column("input_cost", BigInteger, nullable=False, server_default="0"),
    Column("cached_cost", BigInteger, nullable=False, server_default="0"),
    Column("output_cost", BigInteger, nullable=False, server_default="0"),
    Index("ix_request_log_key", "key_id", "at"),
    Index("ix_request_log_account", "account", "at"),
)
# Rows without an operation were written by the version before, and are not in the sums of usage yet.
Index(
    "ix_request_log_before",
    request_log.c.record_id,
    sqlite_where=request_log.c.operation.is_(None),
    postgresql_where=request_log.c.operation.is_(None),
)

# Written by processes of the version before, until they have ended; see `usage_tables` for what is read.
usage = Table(
    "usage",
    metadata,
    Column("key_id", String(40), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("model", String(256), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("num_requests", BigInteger, nullable=False),
    Column("num_errors", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("discounted_tokens", BigInteger, nullable=False, server_default="0"),
    Index("ix_usage_account", "account", "day"),
    Index("ix_usage_day", "day"),
)

# The key of each account, wrapped by the master key; it wraps the keys of the account's objects.
account_keys = Table(
    "account_keys",
    metadata,
    Column("account", String(64), primary_key=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)

# A file's name is sealed, as its content is: `wrapped_key` opens both, and deleting the row destroys them.
files = Table(
    "files",
    metadata,
    Column("file_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("object_key", String(128), nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_name", LargeBinary, nullable=False),
    Index("ix_files_account", "account", "created_at", "file_id"),
)

# `epoch` counts the claims of a batch; the holder of an older claim can change nothing.
# At `counted_at`, `elapsed_s` of the batch's time had passed; both are null before the first claim.
# `done` has a bit for each line whose outcome is in a segment. `wrapped_key` opens the sealed metadata.
batches = Table(
    "batches",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("principal", JSON, nullable=False),
    Column("endpoint", String(64), nullable=False),
    Column("input_file_id", String(64), nullable=False, index=True),
    Column("completion_window", String(8), nullable=False),
    Column("output_expires_after_s", Integer),
    Column("status", String(16), nullable=False, index=True),
    Column("errors", JSON(none_as_null=True)),
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    Column("created_at", Double, nullable=False),
    Column("in_progress_at", Double),
    Column("expires_at", Double, nullable=False),
    Column("finalizing_at", Double),
    Column("completed_at", Double),
    Column("failed_at", Double),
    Column("expired_at", Double),
    Column("cancelling_at", Double),
    Column("cancelled_at", Double),
    Column("paused_at", Double),
    Column("num_total", Integer, nullable=False),
    Column("num_completed", Integer, nullable=False),
    Column("num_failed", Integer, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("enqueued_tokens", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_until", Double, nullable=False),
    Column("elapsed_s", Double),
    Column("counted_at", Double),
    Column("done", LargeBinary, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_metadata", LargeBinary),
    Index("ix_batches_account", "account", "created_at", "batch_id"),
)

# The one row names the object store that belongs to this database: the one with the same marker; see objects.marker.
object_stores = Table(
    "object_stores",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("marker", String(64), nullable=False),
    Column("is_written", Boolean, nullable=False),
)

# What one of two object stores still lacks, or has to delete. `token` changes with each note about an object.
object_copies = Table(
    "object_copies",
    metadata,
    Column("store", String(16), primary_key=True),
    Column("object_key", String(255), primary_key=True),
    Column("is_deleted", Boolean, nullable=False),
    Column("since", Double, nullable=False),
    Column("token", String(32), nullable=False),
    Index("ix_object_copies_store_since", "store", "since"),
)

# Objects that hold outcomes of lines; `entries` are the lines and their places in it. Deleted when the batch ends.
batch_segments = Table(
    "batch_segments",
    metadata,
    Column("segment_id", String(64), primary_key=True),
    Column("batch_id", String(64), nullable=False, index=True),
    Column("epoch", BigInteger, nullable=False),
    Column("object_key", String(128), nullable=False, index=True),
    Column("num_bytes", BigInteger, nullable=False),
    Column("entries", LargeBinary, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
)

# Responses and conversations. Their content is small, so it is in the row itself and comes and goes in the row's
# transaction. Deleting a row deletes its wrapped key.
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

# The response of each item, for later requests that refer to the item.
response_items = Table(
    "response_items",
    metadata,
    Column("item_id", String(128), primary_key=True),
    Column("response_id", String(64), primary_key=True),
    Index("ix_response_items_response", "response_id"),
)

# A response that runs in the background. Its runner may write as long as it holds the newest epoch.
response_jobs = Table(
    "response_jobs",
    metadata,
    Column("response_id", String(64), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_until", Double, nullable=False, index=True),
    Column("is_cancelled", Boolean, nullable=False),
    # Read by replicas of the version before, while they drain.
    Column("was_followed", Boolean, nullable=False, default=False),
    Column("num_events", Integer, nullable=False),
    Column("sealed_job", LargeBinary, nullable=False),
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

# Containers of the code interpreter. Their content is in the memory of a replica, whose place is in the sealed record.
# A container ends after `idle_s` seconds without use.
containers = Table(
    "containers",
    metadata,
    Column("container_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("last_active_at", Double, nullable=False),
    Column("idle_s", Double, nullable=False),
    Column("has_ended", Boolean, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Index("ix_containers_account", "account", "created_at", "container_id"),
)

# Vector stores, each of one embedding model. `revision` changes with what a search can find. The index is tidied next
# at `tidy_at`, and then holds entries without a row if `is_dirty`.
# A deleted store keeps its row, without its key and its record, until its index is gone.
vector_stores = Table(
    "vector_stores",
    metadata,
    Column("store_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("embedding_model", String(256), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("last_active_at", Double, nullable=False),
    Column("expires_after_days", Integer),
    Column("expires_at", Double, index=True),
    Column("has_expired", Boolean, nullable=False),
    Column("is_deleted", Boolean, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("is_dirty", Boolean, nullable=False),
    Column("tidy_at", Double, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Index("ix_vector_stores_account", "account", "created_at", "store_id"),
)

# The files in each store. `run_id` names the claim under which a file is or was indexed: the holder of another claim
# may write nothing, and index entries of another claim do not count. `wrapped_key` opens the sealed record and the
# file's index entries. `expires_at` is the file's own.
vector_store_files = Table(
    "vector_store_files",
    metadata,
    Column("store_id", String(64), primary_key=True),
    Column("file_id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("batch_id", String(64), index=True),
    Column("status", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("usage_bytes", BigInteger, nullable=False),
    Column("error_code", String(32)),
    Column("error_message", String(500)),
    Column("run_id", String(32), nullable=False),
    Column("num_claims", Integer, nullable=False),
    Column("lease_until", Double, nullable=False),
    Column("principal", JSON, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_record", LargeBinary, nullable=False),
    Index("ix_vector_store_files_order", "store_id", "created_at", "file_id"),
    Index("ix_vector_store_files_file", "file_id"),
    Index("ix_vector_store_files_work", "status", "lease_until"),
)

vector_store_batches = Table(
    "vector_store_batches",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("store_id", String(64), nullable=False, index=True),
    Column("account", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("is_cancelled", Boolean, nullable=False),
)

# Where ingress replicas listen, as HOST:PORT; each writes its row again every few seconds. Private addresses of two
# regions may be the same. `region` is empty where there is one region.
ingress_replicas = Table(
    "ingress_replicas",
    metadata,
    Column("region", String(16), primary_key=True),
    Column("address", String(64), primary_key=True),
    Column("seen_at", Double, nullable=False, index=True),
)

# The regions that share this database; each writes its row again every few seconds.
regions = Table(
    "regions",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("seen_at", Double, nullable=False),
    Column("drained_at", Double),
    Column("facts", JSON, nullable=False),
)

# Which region does what only one needs to do; `epoch` counts the takeovers.
leaders = Table(
    "leaders",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("region", String(16), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_until", Double, nullable=False),
)
