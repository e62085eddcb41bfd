"""Writes of many requests in one transaction: those that come while others are committed go into the next together.

A commit waits for the disk, and every statement for a thread or a server; at sixty requests a second that costs more
than the rows themselves. There is no timer: a single write is committed at once. SQLite commits one transaction at a
time; PostgreSQL several, each of which is one message, so that a write seldom waits for the trip of another.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table

from deployments.state.database.connection import Database
from deployments.state.database.inserting import insert_all, parameters_of

Rows = dict[Table, list[dict[str, Any]]]

_MAX_TOGETHER = 64
_MAX_WRITING = 4
"""How many transactions are written at once to PostgreSQL: as many as its pool keeps connections open."""


class GroupCommit:
    """Inserts rows into one database; of each caller's rows, either all are inserted or none."""

    def __init__(self, database: Database, tables: Sequence[Table], patience_s: float = 0.0) -> None:
        """Take the tables in the order in which their rows are inserted; `patience_s` is that of `Database.repeat`."""
        self._database = database
        self._tables = tables
        self._patience_s = patience_s
        self._waiting: list[tuple[Rows, asyncio.Future[None]]] = []
        self._writing: set[asyncio.Task[Any] | None] = set()
        self._max_writing = 1 if database.is_sqlite else _MAX_WRITING
        self._inserts = {is_again: insert_all(tables, is_again=is_again) for is_again in (False, True)}

    async def insert(self, rows: Rows) -> None:
        """Insert rows; return once they are committed.

        Raises:
            SQLAlchemyError: they were not, because a row is invalid or the database fails.
        """
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, done))
        if len(self._writing) < self._max_writing:
            self._writing.add(asyncio.create_task(self._write()))
        await done

    async def _write(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:_MAX_TOGETHER], self._waiting[_MAX_TOGETHER:]
                await self._commit(together)
        finally:  # Before another insert looks: one that finds it here counts on it.
            self._writing -= {asyncio.current_task()}

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
        rows = {table: [row for one in together for row in one.get(table, ())] for table in self._tables}

        def write(connection: Connection, is_again: bool) -> None:
            for table, of_table in rows.items():
                if of_table:
                    connection.execute(self._database.insert(table, is_again=is_again), of_table)

        async def commit(is_again: bool) -> None:
            if self._database.is_sqlite:
                await self._database.write_at_once(lambda connection: write(connection, is_again))
            else:
                await self._database.write_alone(self._inserts[is_again], parameters_of(rows))

        await self._database.repeat(commit, self._patience_s)
