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
    Index("ix_files_account_bytes", "account", "num_bytes"),  # The sum is read from it alone, while writers wait.
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

# When each account was served last by a queue of work that many share: `turn` counts up by queue. `lane` is the part of
# the account's work that was served, empty for the account as a whole.
work_turns = Table(
    "work_turns",
    metadata,
    Column("queue", String(16), primary_key=True),
    Column("account", String(64), primary_key=True),
    Column("lane", String(64), primary_key=True),
    Column("turn", BigInteger, nullable=False),
    Index("ix_work_turns_turn", "queue", "turn"),
)
