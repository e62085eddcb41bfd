"""The containers of all accounts, and the replica that holds each: the content is only in its memory.

A container of another account does not exist. An ended container can still be shown for an hour.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import ColumnElement, and_, delete, func, insert, select, update

from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, clean_id, columns_for, fetch_page
from deployments.state.database.tables.content import containers as table
from deployments.state.encryption.vault import Vault, lock_account

ENDED_S = 3600.0
"""How long an ended container can still be shown."""

_RECORD = b"container"
_SWEPT_AT_ONCE = 500
_ALL = 1_000_000


class TooManyContainers(Exception):
    """The account has reached its limit of containers."""


@dataclass(frozen=True, slots=True)
class StoredContainer:
    """A stored container. Times are Unix seconds; `place` is the address of the replica that holds it."""

    container_id: str
    account: str
    name: str
    memory_limit: str
    created_at: float
    last_active_at: float
    idle_s: float
    is_running: bool
    place: dict[str, Any]


class ContainerStore:
    """The containers of one database."""

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self.clock = clock

    async def add(self, container: StoredContainer, max_running: int) -> None:
        """Add a container.

        Raises:
            TooManyContainers: the account already has `max_running`.
        """
        account_key = await self._vault.account_key(container.account)
        key, wrapped = account_key.new_object(container.container_id)
        record = {"name": container.name, "memory_limit": container.memory_limit, "place": container.place}
        row = {
            "container_id": container.container_id,
            "account": container.account,
            "created_at": container.created_at,
            "last_active_at": container.last_active_at,
            "idle_s": container.idle_s,
            "has_ended": False,
            "expires_at": container.last_active_at + container.idle_s + ENDED_S,
            "wrapped_key": wrapped,
            "sealed_record": key.seal(orjson.dumps(record), _RECORD),
        }
        count = select(func.count()).where(table.c.account == container.account, self._runs())
        async with self._database.write() as connection:
            await lock_account(connection, container.account)
            if int(await connection.scalar(count) or 0) >= max_running:
                raise TooManyContainers
            await connection.execute(insert(table).values(row))

    async def count_running(self, account: str) -> int:
        """Return the number of an account's running containers."""
        count = select(func.count()).where(table.c.account == account, self._runs())
        return int((await self._database.fetch(count)).scalar() or 0)

    def _runs(self) -> ColumnElement[bool]:
        return and_(table.c.has_ended.is_(False), table.c.last_active_at + table.c.idle_s > self.clock())

    async def find(self, account: str, container_id: str) -> StoredContainer | None:
        """Return a container, also an ended one; None if there is none."""
        row = await self._row(account, container_id)
        return None if row is None else await self._open(row)

    async def list_containers(
        self, account: str, page: Page, name: str | None = None
    ) -> tuple[list[StoredContainer], bool]:
        """Return a page of an account's containers, of one name if it is given, and whether there are more.

        Raises:
            KeyError: the account has no container `page.after`.
        """
        query = select(table).where(table.c.account == account, table.c.expires_at > self.clock())
        # Names are sealed, so the database cannot look for them.
        fetched = page if name is None else replace(page, limit=_ALL)
        async with self._database.read() as connection:
            rows, has_more = await fetch_page(connection, query, table.c.container_id, fetched, KeyError)
        found = [await self._open(row) for row in rows]
        if name is None:
            return found, has_more
        found = [one for one in found if one.name == name]
        return found[: page.limit], len(found) > page.limit

    async def touch(self, container_id: str) -> None:
        """Note that a container was used now."""
        now = self.clock()
        values = {"last_active_at": now, "expires_at": now + table.c.idle_s + ENDED_S}
        await self._database.execute(update(table).where(table.c.container_id == container_id).values(values))

    async def note_end(self, container_id: str) -> None:
        """Note that a container has ended."""
        await self._database.execute(update(table).where(table.c.container_id == container_id).values(has_ended=True))

    async def delete(self, account: str, container_id: str) -> bool:
        """Delete the row of a container; return whether there was one."""
        async with self._database.write() as connection:
            statement = delete(table).where(table.c.container_id == clean_id(container_id), table.c.account == account)
            return bool((await connection.execute(statement)).rowcount)

    async def sweep(self) -> int:
        """Delete the rows of containers that ended more than an hour ago; return how many."""
        old = select(table.c.container_id).where(table.c.expires_at <= self.clock()).limit(_SWEPT_AT_ONCE)
        return int((await self._database.execute(delete(table).where(table.c.container_id.in_(old)))).rowcount)

    async def _row(self, account: str, container_id: str) -> Mapping[str, Any] | None:
        query = select(table).where(
            table.c.container_id == clean_id(container_id),
            table.c.account == account,
            table.c.expires_at > self.clock(),
        )
        row = await self._database.read_at_once(lambda connection: connection.execute(query).mappings().one_or_none())
        return None if row is None else dict(row)

    async def _open(self, row: Mapping[str, Any]) -> StoredContainer:
        account_key = await self._vault.account_key(row["account"])
        key = account_key.open_object(row["container_id"], row["wrapped_key"])
        record = orjson.loads(key.open(row["sealed_record"], _RECORD))
        return StoredContainer(
            **columns_for(StoredContainer, row),
            name=record["name"],
            memory_limit=record["memory_limit"],
            is_running=not row["has_ended"] and row["last_active_at"] + row["idle_s"] > self.clock(),
            place=record["place"],
        )
