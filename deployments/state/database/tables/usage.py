"""The tables of usage: sums of requests by minute, hour and day, their latencies, and the size of vector stores.

`start` is the first second of the period, in Unix seconds. Costs are in 10^-12 of the currency: a price in millionths
of the currency for a million tokens, times tokens, has no fraction.
"""

from typing import Literal

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, String, Table

from deployments.state.database.tables.service import metadata

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
    Column("param", String(128)),
    Index("ix_request_log_key", "key_id", "at"),
    Index("ix_request_log_account", "account", "at"),
)

COUNTS = (
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
"""The columns of a usage table that are added up."""


def _usage_table(name: str) -> Table:
    """Return a table of sums. The order of its key makes a period of time one range, in SQLite of the rows too."""
    return Table(
        name,
        metadata,
        Column("start", BigInteger, primary_key=True, autoincrement=False),
        Column("account", String(64), primary_key=True),
        Column("key_id", String(40), primary_key=True),
        Column("model", String(256), primary_key=True),
        Column("operation", String(32), primary_key=True),
        Column("is_batch", Boolean, primary_key=True),
        Column("service_tier", String(16), primary_key=True),
        *(Column(count, BigInteger, nullable=False) for count in COUNTS),
        Index(f"ix_{name}_account", "account", "start"),
        sqlite_with_rowid=False,
    )


def _latency_table(name: str) -> Table:
    """Return a table of latencies; the account "" stands for all. See `usage.rollups`."""
    return Table(
        name,
        metadata,
        Column("start", BigInteger, primary_key=True, autoincrement=False),
        Column("account", String(64), primary_key=True),
        Column("model", String(256), primary_key=True),
        Column("metric", String(8), primary_key=True),
        Column("bucket", Integer, primary_key=True),
        Column("count", BigInteger, nullable=False),
        Index(f"ix_{name}_account", "account", "start"),
        sqlite_with_rowid=False,
    )


Width = Literal["1m", "1h", "1d"]
_NAMES: dict[Width, str] = {"1m": "minutes", "1h": "hours", "1d": "days"}
USAGE = {width: _usage_table(f"usage_{name}") for width, name in _NAMES.items()}
"""The sums by width of the period."""
LATENCY = {width: _latency_table(f"latency_{name}") for width, name in _NAMES.items()}
"""The latencies by width of the period."""

# The last size of an account's vector stores in each period of the `width` 1h or 1d.
vector_store_bytes = Table(
    "vector_store_bytes",
    metadata,
    Column("width", String(2), primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("account", String(64), primary_key=True),
    Column("num_bytes", BigInteger, nullable=False),
)
