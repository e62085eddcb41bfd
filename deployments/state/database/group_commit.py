"""Writes of many requests in one transaction: those that come while one is being committed go into the next together.

A commit waits for the disk, and every statement for a thread or a server; at sixty requests a second that costs more
than the rows themselves. There is no timer: a single write is committed at once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table

from deployments.state.database.connection import Database

Rows = dict[Table, list[dict[str, Any]]]

_MAX_TOGETHER = 64


class GroupCommit:
    """Inserts rows into one database; of each caller's rows, either all are inserted or none."""

    def __init__(self, database: Database, tables: Sequence[Table], patience_s: float = 0.0) -> None:
        """Take the tables in the order in which their rows are inserted; `patience_s` is that of `Database.repeat`."""
        self._database = database
        self._tables = tables
        self._patience_s = patience_s
        self._waiting: list[tuple[Rows, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def insert(self, rows: Rows) -> None:
        """Insert rows; return once they are committed.

        Raises:
            SQLAlchemyError: they were not, because a row is invalid or the database fails.
        """
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await done

    async def _write(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:_MAX_TOGETHER], self._waiting[_MAX_TOGETHER:]
                await self._commit(together)
        finally:
            self._writing = None

    async def _commit(self, together: list[tuple[Rows, "asyncio.Future[None]"]]) -> None:
        """Insert the rows of several callers in one transaction; if it fails, in one transaction for each caller."""
        try:
            await self._insert([rows for rows, _ in together])
        except Exception as error:
            if len(together) > 1:
                for one in together:
                    await self._commit([one])
            elif not together[0][1].done():
                together[0][1].set_exception(error)
            return
        for _, done in together:
            if not done.done():  # Its caller may have been cancelled.
                done.set_result(None)

    async def _insert(self, together: list[Rows]) -> None:
        def write(connection: Connection, is_again: bool) -> None:
            for table in self._tables:
                rows = [row for one in together for row in one.get(table, ())]
                if rows:
                    connection.execute(self._database.insert(table, is_again=is_again), rows)

        await self._database.repeat(
            lambda is_again: self._database.write_at_once(lambda connection: write(connection, is_again)),
            self._patience_s,
        )
