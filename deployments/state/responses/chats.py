"""Stored chat completions: each with its messages, found by its id, or in a list by its model and its metadata.

Metadata is sealed like all content. So that a list can be narrowed by it, each of its pairs has a digest under the
account's key: equal pairs of one account have equal digests, and nobody without the key learns more than that.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection, Select, delete, insert, select, update

from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, clean_id, fetch_page, id_groups
from deployments.state.database.tables.responses import chat_completion_pairs as pairs_table
from deployments.state.database.tables.responses import chat_completions as table
from deployments.state.encryption.sealing import AccountKey
from deployments.state.encryption.vault import Vault
from deployments.state.responses.queries import bounded, checked, sweep
from deployments.state.responses.values import FINISHED_S, Item

_COMPLETION, _MESSAGES, _METADATA, _PAIR = b"chat completion", b"chat messages", b"chat metadata", b"chat metadata pair"


@dataclass(frozen=True, slots=True)
class StoredChat:
    """A stored chat completion: the object that clients see, without its metadata, and the messages it answers."""

    completion: Item
    metadata: dict[str, str]
    messages: list[Item]

    @property
    def id(self) -> str:
        """The id of the completion."""
        return str(self.completion["id"])


class ChatMissing(Exception):
    """The account has no chat completion of that id."""

    def __init__(self, completion_id: str) -> None:
        super().__init__(completion_id)
        self.completion_id = completion_id


class ChatStore:
    """The chat completions of one database."""

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock

    async def save(self, account: str, chat: StoredChat, *, expires_at: float) -> None:
        """Store a chat completion, in place of what another try of its request has stored."""
        account_key = await self._vault.account_key(account)
        key, wrapped = account_key.new_object(chat.id)
        row = {
            "completion_id": chat.id,
            "account": account,
            "model": chat.completion["model"],
            "created_at": self._clock(),
            "expires_at": expires_at,
            "wrapped_key": wrapped,
            "sealed_completion": key.seal(orjson.dumps(chat.completion), _COMPLETION),
            "sealed_messages": key.seal(orjson.dumps(chat.messages), _MESSAGES),
            "sealed_metadata": key.seal(orjson.dumps(chat.metadata), _METADATA),
        }
        pairs = _pair_rows(account_key, chat.id, chat.metadata)

        def write(connection: Connection) -> None:
            _destroy(connection, [chat.id])
            connection.execute(self._database.insert_or_ignore(table).values(row))
            if pairs:
                connection.execute(self._database.insert_or_ignore(pairs_table), pairs)

        await self._database.repeat(lambda is_again: self._database.write_at_once(write), FINISHED_S)

    async def load(self, account: str, completion_id: str) -> StoredChat | None:
        """Return a chat completion without its messages, None if there is none."""
        columns = (table.c.sealed_completion, table.c.sealed_metadata)
        row = (await self._database.fetch(self._living(account, completion_id).add_columns(*columns))).mappings()
        found = row.one_or_none()
        return None if found is None else _open(await self._vault.account_key(account), dict(found))

    async def load_messages(self, account: str, completion_id: str) -> list[Item] | None:
        """Return the messages of a chat completion, None if there is none."""
        query = self._living(account, completion_id).add_columns(table.c.sealed_messages)
        row = (await self._database.fetch(query)).mappings().one_or_none()
        if row is None:
            return None
        key = (await self._vault.account_key(account)).open_object(row["completion_id"], row["wrapped_key"])
        messages: list[Item] = orjson.loads(key.open(row["sealed_messages"], _MESSAGES))
        return messages

    async def list_chats(
        self, account: str, page: Page, *, model: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> tuple[list[StoredChat], bool]:
        """Return a page of an account's chat completions without their messages, and whether there are more.

        `model` and the pairs of `metadata` narrow it.

        Raises:
            ChatMissing: `page.after` names none of the account's.
            TooMuchToRead: they hold more than MAX_READ_BYTES together.
        """
        account_key = await self._vault.account_key(account)
        query = select(table.c.completion_id, table.c.created_at)
        query = query.where(table.c.account == account, table.c.expires_at > self._clock())
        where = [] if model is None else [table.c.model == clean_id(model)]
        for name, value in (metadata or {}).items():
            digest = _digest(account_key, name, value)
            holders = select(pairs_table.c.completion_id).where(pairs_table.c.digest == digest)
            where.append(table.c.completion_id.in_(holders))
        async with self._database.read() as connection:
            found, has_more = await fetch_page(connection, query, table.c.completion_id, page, ChatMissing, *where)
        ids = [row["completion_id"] for row in found]
        columns = (table.c.completion_id, table.c.wrapped_key, table.c.sealed_metadata)
        content = bounded(select(*columns).where(table.c.completion_id.in_(ids)), table.c.sealed_completion)
        rows = checked((await self._database.fetch(content)).mappings(), "sealed_completion")
        chats = {row["completion_id"]: _open(account_key, dict(row)) for row in rows}
        return [chats[completion_id] for completion_id in ids if completion_id in chats], has_more

    async def update(self, account: str, completion_id: str, metadata: dict[str, str]) -> StoredChat | None:
        """Replace the metadata of a chat completion; return it without its messages, None if there is none."""
        chat = await self.load(account, completion_id)
        if chat is None:
            return None
        account_key = await self._vault.account_key(account)
        pairs = _pair_rows(account_key, chat.id, metadata)
        is_there = False

        def write(connection: Connection) -> None:
            nonlocal is_there
            row = connection.execute(self._living(account, chat.id).with_for_update()).mappings().one_or_none()
            is_there = row is not None
            if row is None:
                return
            key = account_key.open_object(chat.id, row["wrapped_key"])
            sealed = key.seal(orjson.dumps(metadata), _METADATA)
            connection.execute(update(table).where(table.c.completion_id == chat.id).values(sealed_metadata=sealed))
            connection.execute(delete(pairs_table).where(pairs_table.c.completion_id == chat.id))
            if pairs:
                connection.execute(insert(pairs_table), pairs)

        await self._database.write_at_once(write)
        return replace(chat, metadata=metadata) if is_there else None

    async def delete(self, account: str, completion_id: str) -> bool:
        """Delete a chat completion; return whether there was one."""
        was_there = False

        def write(connection: Connection) -> None:
            nonlocal was_there
            was_there = connection.execute(self._living(account, completion_id)).first() is not None
            if was_there:
                _destroy(connection, [completion_id])

        await self._database.write_at_once(write)
        return was_there

    async def sweep(self) -> int:
        """Delete the expired chat completions; return how many."""
        query = select(table.c.completion_id).where(table.c.expires_at <= self._clock())
        return await sweep(self._database, query, lambda connection, ids: connection.run_sync(_destroy, ids))

    def _living(self, account: str, completion_id: str) -> Select[Any]:
        """Return the query for a chat completion without its sealed content."""
        query = select(table.c.completion_id, table.c.wrapped_key, table.c.created_at)
        return query.where(
            table.c.completion_id == clean_id(completion_id),
            table.c.account == account,
            table.c.expires_at > self._clock(),
        )


def _open(account_key: AccountKey, row: dict[str, Any]) -> StoredChat:
    key = account_key.open_object(row["completion_id"], row["wrapped_key"])
    completion = orjson.loads(key.open(row["sealed_completion"], _COMPLETION))
    return StoredChat(completion, orjson.loads(key.open(row["sealed_metadata"], _METADATA)), [])


def _pair_rows(account_key: AccountKey, completion_id: str, metadata: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"completion_id": completion_id, "digest": _digest(account_key, name, value)}
        for name, value in metadata.items()
    ]


def _digest(account_key: AccountKey, name: str, value: str) -> bytes:
    return account_key.digest(orjson.dumps([name, value]), _PAIR)


def _destroy(connection: Connection, completion_ids: list[str]) -> None:
    for group in id_groups(completion_ids):
        for found in (pairs_table, table):
            connection.execute(delete(found).where(found.c.completion_id.in_(group)))
