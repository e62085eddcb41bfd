"""The responses of one application, in a SQLite database of their own, and what the database has of them."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from sqlalchemy import select

from deployments.state.database.connection import Database, connect
from deployments.state.database.tables.responses import response_events, response_jobs, responses
from deployments.state.disk import DiskReserve
from deployments.state.encryption.vault import SealedTokens, Vault
from deployments.state.identity.tiers import Tiers
from deployments.state.quotas import ItemQuota
from deployments.state.responses import background
from deployments.state.responses.background import BackgroundStore
from deployments.state.responses.chats import ChatStore
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.store import ResponseStore, open_turn
from deployments.state.responses.values import StoredTurn
from serve_app.operations.responses.storage import Storage


class StoredResponses:
    """An open database of responses; `count` and `status` read it beside the application."""

    def __init__(self, database: Database, path: Path, clock: Callable[[], float]) -> None:
        self.database = database
        self._path = path
        self._clock = clock
        self._vault = Vault(database, b"m" * 32)

    def storage(self, files: Any, tiers: Tiers | None = None, disk: DiskReserve | None = None) -> Storage:
        """Return new stores over the database."""
        place = (self.database, self._vault, self._clock)
        item_quota = ItemQuota(self.database, tiers, disk, self._clock)
        stores = ResponseStore(*place), BackgroundStore(*place), ConversationStore(*place), ChatStore(*place)
        return Storage(*stores, SealedTokens(self._vault), files, item_quota, self._clock)

    def _read(self, query: str, *values: str) -> Any:
        with closing(sqlite3.connect(self._path)) as connection:
            row = connection.execute(query, values).fetchone()
        return row[0] if row is not None else None

    def count(self, table: str = "responses") -> int:
        """Return how many rows a table has."""
        return int(self._read(f"SELECT count(*) FROM {table}"))

    def status(self, response_id: str) -> str:
        """Return the status of a response."""
        return str(self._read("SELECT status FROM responses WHERE response_id = ?", response_id))

    def num_events(self, response_id: str) -> int:
        """Return how many events of a response that runs in the background are stored."""
        return self._read("SELECT num_events FROM response_jobs WHERE response_id = ?", response_id) or 0

    async def turns(self) -> dict[str, StoredTurn]:
        """Return everything that is stored of each response, by id."""
        rows = await self._rows(responses)
        return {row["response_id"]: open_turn(await self._vault.account_key(row["account"]), row) for row in rows}

    async def events(self, response_id: str) -> list[bytes]:
        """Return the events of a response that runs or ran in the background."""
        key = await self._key(response_id)
        rows = [row for row in await self._rows(response_events) if row["response_id"] == response_id]
        return [event for row in rows for event in background._open_events(key, row, -1)]

    async def job(self, response_id: str) -> Any:
        """Return what a response was started with in the background."""
        (job,) = [row for row in await self._rows(response_jobs) if row["response_id"] == response_id]
        return background.orjson.loads((await self._key(response_id)).open(job["sealed_job"], background._JOB))

    async def journal(self, response_id: str) -> list[bytes]:
        """Return the journal of a response that runs in the background."""
        key = await self._key(response_id)
        rows = [row for row in await self._rows(response_events) if row["response_id"] == response_id]
        return [entry for row in rows for entry in background._open_journal(key, row)]

    async def write_journal(self, response_id: str, entries: list[bytes]) -> None:
        """Put another journal in the place of that of a response."""
        rows = [row for row in await self._rows(response_events) if row["response_id"] == response_id]
        key, first = await self._key(response_id), rows[0]["first"]
        changed = background._events_row(key, response_id, first, [], entries)["sealed_journal"]
        where = response_events.c.response_id == response_id
        async with self.database.write() as connection:
            await connection.execute(response_events.update().where(where).values(sealed_journal=None))
            where &= response_events.c.first == first
            await connection.execute(response_events.update().where(where).values(sealed_journal=changed))

    async def _key(self, response_id: str) -> Any:
        (row,) = [row for row in await self._rows(responses) if row["response_id"] == response_id]
        return (await self._vault.account_key(row["account"])).open_object(response_id, row["wrapped_key"])

    async def _rows(self, table: Any) -> list[dict[str, Any]]:
        order = [table.c.first] if "first" in table.c else []
        async with self.database.read() as connection:
            return [dict(row) for row in (await connection.execute(select(table).order_by(*order))).mappings()]


@asynccontextmanager
async def open_responses(url: str, path: Path, clock: Callable[[], float]) -> AsyncIterator[StoredResponses]:
    """Open a database whose tables are there already."""
    database = await connect(url)
    yield StoredResponses(database, path, clock)
    await database.close()
