"""The tables of keys, limits, the audit log and the console, and of the parts of a service."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Index, LargeBinary, MetaData, String, Table

metadata = MetaData()

# One row for each kind of row that other processes follow; every change takes the next number in its transaction.
revisions = Table(
    "revisions", metadata, Column("name", String(32), primary_key=True), Column("value", BigInteger, nullable=False)
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

# The key of each account, wrapped by the master key; it wraps the keys of the account's objects.
account_keys = Table(
    "account_keys",
    metadata,
    Column("account", String(64), primary_key=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)

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

# A token is in a cookie or a link, and here only as its SHA-256; `key_digest` is a digest of `api_keys`.
console_sessions, console_links = (
    Table(
        name,
        metadata,
        Column("token_digest", LargeBinary(32), primary_key=True),
        Column("key_digest", LargeBinary(32), nullable=False),
        Column("expires_at", Double, nullable=False, index=True),
    )
    for name in ("console_sessions", "console_links")
)

# Failed sign-ins by address and minute of the clock; the address "" stands for all of them.
console_failures = Table(
    "console_failures",
    metadata,
    Column("address", String(64), primary_key=True),
    Column("minute", BigInteger, primary_key=True),
    Column("num_failed", BigInteger, nullable=False),
)


def _state_table(name: str, *region: Column[str]) -> Table:
    return Table(
        name,
        metadata,
        *region,
        Column("name", String(32), primary_key=True),
        Column("journal", String(40), nullable=False),
        Column("segment", BigInteger, nullable=False),
        Column("at", Double, nullable=False),
        Column("stopped", JSON),
    )


def _charges_table(name: str, *region: Column[str]) -> Table:
    return Table(
        name,
        metadata,
        *region,
        Column("key_id", String(40), primary_key=True),
        Column("at", Double, nullable=False, index=True),
        Column("version", BigInteger, nullable=False),
        Column("requests", LargeBinary, nullable=False),
        Column("tokens", LargeBinary, nullable=False),
    )


# The charges of each key at the gatekeeper's last snapshot, and where its journal goes on.
limiter_state = _state_table("limiter_state")
limiter_charges = _charges_table("limiter_charges")
region_limiter_state = _state_table("region_limiter_state", Column("region", String(32), primary_key=True))
region_limiter_charges = _charges_table("region_limiter_charges", Column("region", String(32), primary_key=True))

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

# The region that does the work that only one needs to do; `epoch` counts the takeovers.
leaders = Table(
    "leaders",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("region", String(16), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("lease_until", Double, nullable=False),
)

# The last turn of each account at a queue of work; `turn` counts up by queue. `lane` is the part of the account's work
# that was served, empty for the account as a whole.
work_turns = Table(
    "work_turns",
    metadata,
    Column("queue", String(16), primary_key=True),
    Column("account", String(64), primary_key=True),
    Column("lane", String(64), primary_key=True),
    Column("turn", BigInteger, nullable=False),
    Index("ix_work_turns_turn", "queue", "turn"),
)
