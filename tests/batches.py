"""Batches made by hand, for tests of what looks at them."""

import secrets

from sqlalchemy import insert

from deployments.state.database.connection import Database
from deployments.state.database.tables.content import batches


async def insert_batch(database: Database, **values: object) -> str:
    """Put a row into the table of batches; return its id."""
    row = {
        "batch_id": f"batch_{secrets.token_hex(8)}",
        "account": "acct",
        "key_id": "key-1",
        "principal": {},
        "endpoint": "/v1/chat/completions",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "validating",
        "created_at": 0.0,
        "expires_at": 86_400.0,
        "num_total": 0,
        "num_completed": 0,
        "num_failed": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "enqueued_tokens": 0,
        "epoch": 0,
        "lease_until": 0.0,
        "done": b"",
        "wrapped_key": b"",
        **values,
    }
    async with database.write() as connection:
        await connection.execute(insert(batches).values(row))
    return str(row["batch_id"])
