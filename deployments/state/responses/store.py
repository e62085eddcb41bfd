"""Stored responses: each with its own items, chained by the id of the response before.

A response is found by its id until it expires. Its content stays longer if a response that continues it needs it as
history. The sweep deletes expired responses that no response continues, with the keys that seal their content.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import Connection, Select, delete, insert, literal, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.bulk_insert import GroupCommit, insert_all, parameters_of
from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, clean_id, fetch_page, id_groups
from deployments.state.database.tables.responses import (
    conversation_items,
    conversations,
    response_events,
    response_items,
    response_jobs,
)
from deployments.state.database.tables.responses import responses as table
from deployments.state.encryption.sealing import AccountKey, DataKey
from deployments.state.encryption.vault import Vault
from deployments.state.responses.queries import (
    append_items,
    appended_parameters,
    beside,
    bounded,
    checked,
    item_of,
    remove_items,
    sweep,
    with_appended_items,
)
from deployments.state.responses.values import FINISHED_S, Item, PastTurn, StoredTurn, TurnMissing, TurnUnfinished

ITEMS, RESPONSE = b"response items", b"response"
UNFINISHED = ("queued", "in_progress")
_WITH_CONVERSATION = with_appended_items(insert_all((table, response_items)))


class ResponseStore:
    """The responses of one database."""

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock
        self._saving = GroupCommit(database, (table, response_items), FINISHED_S)

    async def save(
        self,
        account: str,
        turn: StoredTurn,
        *,
        expires_at: float,
        conversation_id: str | None = None,
        is_streamed: bool = False,
    ) -> StoredTurn:
        """Store a response, and add its items to the conversation if it still exists; return the stored response.

        Another try of the same request may have stored a response before. Then the first stays and is returned, unless
        it `is_streamed`: if two tries streamed, the client has read the later one, which is stored.
        """
        account_key = await self._vault.account_key(account)
        row = new_row(account_key, account, turn, expires_at)
        rows = {table: [row], response_items: item_rows(turn)}
        try:
            if conversation_id is None:
                await self._saving.insert(rows)
                return turn
            if not self._database.is_sqlite:
                appended = appended_parameters(account_key, account, conversation_id, turn.items, expires_at)
                parameters = {**parameters_of(rows), **appended}
                await self._database.repeat(
                    lambda is_again: self._database.write_alone(_WITH_CONVERSATION, parameters), FINISHED_S
                )
                return turn
        except IntegrityError:
            pass  # It was stored before, or an item's id is taken in the conversation.
        return await self._save_beside(account_key, row, turn, conversation_id, is_streamed=is_streamed)

    async def _save_beside(
        self,
        account_key: AccountKey,
        row: dict[str, Any],
        turn: StoredTurn,
        conversation_id: str | None,
        *,
        is_streamed: bool,
    ) -> StoredTurn:
        """Store a response beside what another try of its request may have stored; return the stored response."""
        stored, account, expires_at = turn, row["account"], row["expires_at"]
        ignoring = self._database.insert_or_ignore(table).values(row)

        def write(connection: Connection) -> None:
            nonlocal stored
            added = turn.items
            if not connection.execute(ignoring).rowcount:
                query = select(table).where(table.c.response_id == turn.id, table.c.account == account)
                first = open_turn(account_key, dict(connection.execute(query).mappings().one()))
                if not is_streamed or turn.response["created_at"] < first.response["created_at"]:
                    stored = first
                    return
                stored = replace(turn, input=first.input)
                added = stored.response["output"]
                changed = new_row(account_key, account, stored, expires_at)
                connection.execute(update(table).where(table.c.response_id == turn.id).values(changed))
                connection.execute(delete(response_items).where(response_items.c.response_id == turn.id))
                if conversation_id is not None:
                    remove_items(connection, conversation_id, first.response["output"])
            index_items(connection, stored)
            if conversation_id is not None:
                append_items(connection, account_key, account, conversation_id, added, expires_at)

        # If the answer to a commit is lost, the repeated write finds the row.
        await self._database.repeat(lambda is_again: self._database.write_at_once(write), FINISHED_S)
        return stored

    async def load(self, account: str, response_id: str) -> StoredTurn | None:
        """Return a response, also a background response that still runs; None if there is none."""
        query = self._living(account, response_id)
        row = await self._database.read_at_once(lambda connection: connection.execute(query).mappings().one_or_none())
        if row is None:
            return None
        return open_turn(await self._vault.account_key(account), dict(row))

    def _living(self, account: str, response_id: str) -> Select[Any]:
        return select(table).where(
            table.c.response_id == clean_id(response_id), table.c.account == account, table.c.expires_at > self._clock()
        )

    async def chain(self, account: str, response_id: str) -> list[PastTurn]:
        """Return a response and those before it, the oldest first, in one query.

        Raises:
            TurnMissing: there is none, or one before it was deleted.
            TurnUnfinished: it is still running.
            TooMuchToRead: their items are larger than MAX_READ_BYTES together.
        """
        start = self._living(account, response_id).subquery()
        chain = select(start.c.response_id, start.c.previous_id, literal(0).label("depth")).cte("chain", recursive=True)
        before = select(table.c.response_id, table.c.previous_id, chain.c.depth + 1)
        before = before.where(table.c.response_id == chain.c.previous_id, table.c.account == account)
        chain = chain.union_all(before)
        columns = (table.c.response_id, table.c.previous_id, table.c.status, table.c.wrapped_key)
        query = select(*columns).join(chain, chain.c.response_id == table.c.response_id).order_by(chain.c.depth.desc())
        query = bounded(query, table.c.sealed_items)
        rows = await self._database.read_at_once(lambda connection: connection.execute(query).all())
        if not rows:
            raise TurnMissing(response_id)
        if rows[-1].status in UNFINISHED:
            raise TurnUnfinished
        if rows[0].previous_id is not None:
            raise TurnMissing(rows[0].previous_id)
        checked((row._mapping for row in rows), "sealed_items")
        account_key = await self._vault.account_key(account)
        return [_past(account_key.open_object(row.response_id, row.wrapped_key), row.sealed_items) for row in rows]

    async def list_turns(self, account: str, limit: int, after: str | None = None) -> tuple[list[StoredTurn], bool]:
        """Return a page of the account's responses, newest first, and whether there are more.

        Raises:
            TurnMissing: the account has no response `after`.
        """
        query = select(table).where(table.c.account == account, table.c.expires_at > self._clock())
        async with self._database.read() as connection:
            rows, has_more = await fetch_page(
                connection, query, table.c.response_id, Page(limit, after=after), TurnMissing
            )
        account_key = await self._vault.account_key(account)
        return [open_turn(account_key, row) for row in rows], has_more

    async def delete(self, account: str, response_id: str) -> bool:
        """Delete a response; return whether there was one."""
        async with self._database.write() as connection:
            found = (await connection.execute(self._living(account, response_id))).first() is not None
            if found:
                await _destroy(connection, [response_id])
        return found

    async def find_items(self, account: str, item_ids: Sequence[str]) -> dict[str, Item]:
        """Return the account's items among `item_ids`, by id, from responses and conversations.

        Raises:
            TooMuchToRead: their responses are larger than MAX_READ_BYTES together.
        """
        wanted = [clean_id(item_id) for item_id in item_ids]
        account_key = await self._vault.account_key(account)
        in_conversation = (
            select(*beside(conversation_items.c.sealed_item))
            .join(conversations, conversations.c.conversation_id == conversation_items.c.conversation_id)
            .where(conversation_items.c.item_id.in_(wanted), conversations.c.account == account)
            .where(conversations.c.expires_at > self._clock())
        )
        in_conversation = bounded(in_conversation, conversation_items.c.sealed_item)
        async with self._database.read() as connection:
            turns = checked((await connection.execute(self._with_items(account, wanted))).mappings(), "sealed_items")
            kept = checked((await connection.execute(in_conversation)).mappings(), "sealed_item")
        items = [item for row in turns for item in open_turn(account_key, dict(row)).items]
        items += [item_of(account_key, dict(row)) for row in kept]
        return {item["id"]: item for item in items if item["id"] in set(item_ids)}

    async def find_runs(self, account: str, item_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the stored requests and answers of the service's tools, by the ids of their items."""
        wanted = [clean_id(item_id) for item_id in item_ids]
        account_key = await self._vault.account_key(account)
        rows = checked((await self._database.fetch(self._with_items(account, wanted))).mappings(), "sealed_items")
        turns = {row["response_id"]: open_turn(account_key, dict(row)) for row in rows}
        return {item_id: run for turn in turns.values() for item_id, run in turn.runs.items() if item_id in wanted}

    def _with_items(self, account: str, item_ids: Sequence[str]) -> Select[Any]:
        """Return the query for the responses that hold the items, each once, with `bounded` contents."""
        holders = select(response_items.c.response_id).where(response_items.c.item_id.in_(item_ids))
        query = select(*beside(table.c.sealed_items))
        query = query.where(table.c.response_id.in_(holders), table.c.account == account)
        query = query.where(table.c.expires_at > self._clock())
        return bounded(query, table.c.sealed_items)

    async def sweep(self) -> int:
        """Delete the expired responses that no response continues; return how many."""
        later = table.alias("later")
        continued = select(later.c.response_id).where(later.c.previous_id == table.c.response_id).exists()
        # A chain is deleted from its end, a response in each round.
        query = select(table.c.response_id).where(table.c.expires_at <= self._clock(), ~continued)
        return await sweep(self._database, query, _destroy)


def new_row(account_key: AccountKey, account: str, turn: StoredTurn, expires_at: float) -> dict[str, Any]:
    """Return a response's row, under a new key."""
    key, wrapped = account_key.new_object(turn.id)
    return {
        "response_id": turn.id,
        "account": account,
        "previous_id": turn.response["previous_response_id"],
        "created_at": float(turn.response["created_at"]),
        "expires_at": expires_at,
        "wrapped_key": wrapped,
        **seal_turn(key, turn),
    }


def seal_turn(key: DataKey, turn: StoredTurn) -> dict[str, Any]:
    """Return the columns that change while a response runs: its status and its sealed content."""
    items = {"input": turn.input, "output": turn.response["output"], "runs": turn.runs}
    response = {"response": {**turn.response, "output": None}, "cuts": turn.cuts}
    return {
        "status": turn.response["status"],
        "sealed_items": key.seal(orjson.dumps(items), ITEMS),
        "sealed_response": key.seal(orjson.dumps(response), RESPONSE),
    }


def open_turn(account_key: AccountKey, row: dict[str, Any]) -> StoredTurn:
    """Return the response in a row."""
    key = account_key.open_object(row["response_id"], row["wrapped_key"])
    items = orjson.loads(key.open(row["sealed_items"], ITEMS))
    opened = orjson.loads(key.open(row["sealed_response"], RESPONSE))
    opened["response"] |= {"output": items["output"], "status": row["status"]}
    return StoredTurn(opened["response"], items["input"], items["runs"], opened["cuts"])


def item_rows(turn: StoredTurn) -> list[dict[str, Any]]:
    """Return the index rows of the response's items."""
    ids = dict.fromkeys(item["id"] for item in turn.items)
    return [{"item_id": item_id, "response_id": turn.id} for item_id in ids]


def index_items(connection: Connection, turn: StoredTurn) -> None:
    """Add the response's items to the index by item id."""
    rows = item_rows(turn)
    if rows:
        connection.execute(insert(response_items), rows)


def _past(key: DataKey, sealed_items: bytes) -> PastTurn:
    items = orjson.loads(key.open(sealed_items, ITEMS))
    return PastTurn([*items["input"], *items["output"]], items["runs"])


async def _destroy(connection: AsyncConnection, response_ids: Sequence[str]) -> None:
    for found in (table, response_items, response_jobs, response_events):
        for group in id_groups(response_ids):
            await connection.execute(delete(found).where(found.c.response_id.in_(group)))
