"""The tables of the console, in the same database as the others."""

from sqlalchemy import BigInteger, Column, Double, LargeBinary, String, Table

from deployments.state.database.tables import metadata

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
