"""Conversations: their items, in the order in which they were added, each sealed under its own key."""

import secrets
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import orjson
from sqlalchemy import Select, and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, clean_id, fetch_page
from deployments.state.database.tables.responses import conversation_items as items_table
from deployments.state.database.tables.responses import conversations as table
from deployments.state.encryption.vault import Vault, lock_account
from deployments.state.quotas import check_objects
from deployments.state.responses.queries import append_items, beside, bounded, checked, item_of, sweep
from deployments.state.responses.values import MAX_READ_BYTES, Conversation, ConversationMissing, Item

MAX_FIRST_BYTES = 64 * 1024
"""A list of conversations reads no larger item of each."""
_METADATA = b"conversation metadata"


class ConversationStore:
    """The conversations of one database. Methods for items raise ConversationMissing if there is no conversation."""

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock

    async def create(
        self,
        account: str,
        metadata: dict[str, str],
        items: Sequence[Item],
        *,
        expires_at: float,
        max_objects: int | None = None,
    ) -> Conversation:
        """Create a conversation with its first items; return it.

        Raises:
            TooManyObjects: the account has `max_objects`.
        """
        account_key = await self._vault.account_key(account)
        conversation_id, now = f"conv_{secrets.token_hex(16)}", self._clock()
        key, wrapped = account_key.new_object(conversation_id)
        row = {
            "conversation_id": conversation_id,
            "account": account,
            "created_at": now,
            "expires_at": expires_at,
            "next_position": 0,
            "wrapped_key": wrapped,
            "sealed_metadata": key.seal(orjson.dumps(metadata), _METADATA),
        }
        async with self._database.write() as connection:
            await lock_account(connection, account)
            await check_objects(connection, account, max_objects, now)
            await connection.execute(insert(table).values(row))
            await connection.run_sync(append_items, account_key, account, conversation_id, items, expires_at)
        return Conversation(conversation_id, int(now), metadata)

    async def load(self, account: str, conversation_id: str) -> Conversation | None:
        """Return a conversation, None if there is none."""
        row = (await self._database.fetch(self._living(account, conversation_id))).mappings().one_or_none()
        return None if row is None else await self._open(account, dict(row))

    async def list_conversations(
        self, account: str, limit: int, after: str | None = None
    ) -> tuple[list[Conversation], bool]:
        """Return a page of the account's conversations, newest first, and whether there are more.

        Raises:
            ConversationMissing: the account has no conversation `after`.
        """
        query = select(table).where(table.c.account == account, table.c.expires_at > self._clock())
        async with self._database.read() as connection:
            rows, has_more = await fetch_page(
                connection, query, table.c.conversation_id, Page(limit, after=after), ConversationMissing
            )
        return [await self._open(account, row) for row in rows], has_more

    async def _open(self, account: str, row: dict[str, Any]) -> Conversation:
        account_key = await self._vault.account_key(account)
        key = account_key.open_object(row["conversation_id"], row["wrapped_key"])
        metadata = orjson.loads(key.open(row["sealed_metadata"], _METADATA))
        return Conversation(row["conversation_id"], int(row["created_at"]), metadata)

    def _living(self, account: str, conversation_id: str) -> Select[Any]:
        return select(table).where(
            table.c.conversation_id == clean_id(conversation_id),
            table.c.account == account,
            table.c.expires_at > self._clock(),
        )

    async def update(self, account: str, conversation_id: str, metadata: dict[str, str]) -> Conversation | None:
        """Replace the metadata; return the conversation, None if there is none."""
        account_key = await self._vault.account_key(account)
        async with self._database.write() as connection:
            row = (await connection.execute(self._living(account, conversation_id))).mappings().one_or_none()
            if row is None:
                return None
            key = account_key.open_object(row["conversation_id"], row["wrapped_key"])
            sealed = key.seal(orjson.dumps(metadata), _METADATA)
            statement = update(table).where(table.c.conversation_id == conversation_id)
            await connection.execute(statement.values(sealed_metadata=sealed))
        return Conversation(conversation_id, int(row["created_at"]), metadata)

    async def delete(self, account: str, conversation_id: str) -> bool:
        """Delete a conversation and its items; return whether there was one."""
        async with self._database.write() as connection:
            found = (await connection.execute(self._living(account, conversation_id))).first() is not None
            if found:
                await _destroy(connection, [conversation_id])
        return found

    async def add_items(
        self, account: str, conversation_id: str, items: Sequence[Item], *, expires_at: float
    ) -> list[Item]:
        """Add items at the end; return the stored items, with a new id if an id was taken."""
        account_key = await self._vault.account_key(account)
        async with self._database.write() as connection:
            await self._check(connection, account, conversation_id)
            return await connection.run_sync(append_items, account_key, account, conversation_id, items, expires_at)

    async def _check(self, connection: AsyncConnection, account: str, conversation_id: str) -> None:
        if (await connection.execute(self._living(account, conversation_id))).first() is None:
            raise ConversationMissing

    async def all_items(self, account: str, conversation_id: str) -> list[Item]:
        """Return every item, the oldest first.

        Raises:
            TooMuchToRead: they are larger than MAX_READ_BYTES together.
        """
        query = select(items_table).where(items_table.c.conversation_id == clean_id(conversation_id))
        return await self._items(account, conversation_id, query.order_by(items_table.c.position))

    async def _items(self, account: str, conversation_id: str, query: Select[Any]) -> list[Item]:
        content = items_table.c.sealed_item
        query = bounded(query.with_only_columns(*beside(content)), content)
        async with self._database.read() as connection:
            await self._check(connection, account, conversation_id)
            rows = checked((await connection.execute(query)).mappings().all(), content.name)
        account_key = await self._vault.account_key(account)
        return [item_of(account_key, dict(row)) for row in rows]

    async def list_items(
        self, account: str, conversation_id: str, *, limit: int, is_ascending: bool, after: str | None
    ) -> tuple[list[Item], bool]:
        """Return up to `limit` items after the item `after`, and whether there are more.

        They are fewer, but at least one, if they are larger than MAX_READ_BYTES together.

        Raises:
            KeyError: it has no item `after`.
        """
        position = items_table.c.position
        query = select(items_table).where(items_table.c.conversation_id == clean_id(conversation_id))
        async with self._database.read() as connection:
            await self._check(connection, account, conversation_id)
            if after is not None:
                found = (await connection.execute(query.where(items_table.c.item_id == clean_id(after)))).first()
                if found is None:
                    raise KeyError(after)
                query = query.where(position > found.position if is_ascending else position < found.position)
            query = query.order_by(position if is_ascending else position.desc())
            size = func.length(items_table.c.sealed_item)
            sizes = (await connection.execute(query.with_only_columns(size).limit(limit + 1))).scalars().all()
            num_items = max(1, sum(total <= MAX_READ_BYTES for total in accumulate(sizes[:limit])))
            rows = (await connection.execute(query.limit(num_items))).mappings().all()
        account_key = await self._vault.account_key(account)
        return [item_of(account_key, dict(row)) for row in rows], len(sizes) > num_items

    async def first_items(self, account: str, conversation_ids: Sequence[str]) -> dict[str, Item]:
        """Return the first item of each conversation by the conversation's id, but none larger than MAX_FIRST_BYTES."""
        firsts = select(items_table.c.conversation_id, func.min(items_table.c.position).label("position"))
        firsts = firsts.where(items_table.c.conversation_id.in_(conversation_ids))
        first = firsts.group_by(items_table.c.conversation_id).subquery()
        query = (
            select(items_table)
            .join(first, and_(*(items_table.c[name] == first.c[name] for name in ("conversation_id", "position"))))
            .join(table, table.c.conversation_id == items_table.c.conversation_id)
            .where(table.c.account == account, func.length(items_table.c.sealed_item) <= MAX_FIRST_BYTES)
        )
        rows = (await self._database.fetch(query)).mappings().all()
        account_key = await self._vault.account_key(account)
        return {row["conversation_id"]: item_of(account_key, dict(row)) for row in rows}

    async def load_item(self, account: str, conversation_id: str, item_id: str) -> Item | None:
        """Return an item, None if there is none."""
        query = select(items_table).where(
            items_table.c.conversation_id == clean_id(conversation_id), items_table.c.item_id == clean_id(item_id)
        )
        return next(iter(await self._items(account, conversation_id, query)), None)

    async def delete_item(self, account: str, conversation_id: str, item_id: str) -> bool:
        """Delete an item; return whether there was one."""
        statement = delete(items_table).where(
            items_table.c.conversation_id == clean_id(conversation_id), items_table.c.item_id == clean_id(item_id)
        )
        async with self._database.write() as connection:
            await self._check(connection, account, conversation_id)
            return bool((await connection.execute(statement)).rowcount)

    async def sweep(self) -> int:
        """Delete the expired conversations; return how many."""
        query = select(table.c.conversation_id).where(table.c.expires_at <= self._clock())
        return await sweep(self._database, query, _destroy)


async def _destroy(connection: AsyncConnection, conversation_ids: Sequence[str]) -> None:
    for found in (items_table, table):
        await connection.execute(delete(found).where(found.c.conversation_id.in_(conversation_ids)))
