"""What the service writes down about requests, read from its database; and the keys of the rounds."""

import asyncio
import time
from collections.abc import Collection

from sqlalchemy import select

from deployments.state.config import StateConfig, resolve_state
from deployments.state.database.connection import connect
from deployments.state.database.tables.usage import request_log
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import UsageStore
from tests.tools.drills.judge import Charged

SETTLED_S = 4.0
"""A log to which nothing was added for so long is complete: a gatekeeper writes every second, from a region that is far
from the database about every three."""
_FIELDS = [name for name in RequestRecord.__dataclass_fields__ if name != "batch_id"]


class Ledger:
    """The database of the drilled service."""

    def __init__(self, database_url: str, state: StateConfig) -> None:
        """Take the database and the `state:` of the configuration, whose references this process can follow."""
        self._url = database_url
        self._state = resolve_state(state)

    async def issue_key(self, account: str, requests_per_minute: int = 1_000_000) -> tuple[str, str]:
        """Return the id and the secret of a key; by default no limit of a drill reaches it."""
        database = await connect(self._url)
        try:
            keys = KeyStore(database, self._state.pepper, self._state.config.tiers)
            fields = {"requests_per_minute": requests_per_minute, "tokens_per_minute": 1_000_000_000_000}
            key, secret = await keys.create(NewKey(account=account, tier="enterprise", **fields))
            return key.key_id, secret
        finally:
            await database.close()

    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key."""
        database = await connect(self._url)
        try:
            await KeyStore(database, self._state.pepper, self._state.config.tiers).revoke(key_id)
        finally:
            await database.close()

    async def read(self, key_id: str, answered: Collection[str], patience_s: float = 60.0) -> Charged:
        """Return what is written about a key, once it has the ids of these requests and no more come."""
        database = await connect(self._url)
        try:
            deadline, seen, changed_at = time.monotonic() + patience_s, -1, time.monotonic()
            while time.monotonic() < deadline:
                query = select(request_log).where(request_log.c.key_id == key_id)
                async with database.read() as connection:
                    rows = (await connection.execute(query)).mappings().all()
                if len(rows) != seen:
                    seen, changed_at = len(rows), time.monotonic()
                has_all = {row["request_id"] for row in rows}.issuperset(answered)
                if has_all and time.monotonic() - changed_at > SETTLED_S:
                    break
                await asyncio.sleep(0.5)
            usage = await UsageStore(database).by_day(key_id=key_id)
        finally:
            await database.close()
        records = [RequestRecord(**{name: row[name] for name in _FIELDS}) for row in rows]
        return Charged(records, (sum(row.prompt_tokens for row in usage), sum(row.completion_tokens for row in usage)))
