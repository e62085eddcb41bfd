"""Inserts rows of several tables: in one statement on PostgreSQL, which needs no transaction around it.

The rows are one array for each column. So the text of the statement is the same for any number of rows: it is prepared
once on each connection, and is one message from then on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Connection, Insert, String, Table, Text, bindparam, column, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.selectable import TableValuedAlias

from deployments.state.database.connection import Database


def insert_all(tables: Sequence[Table], *, is_again: bool = False) -> Insert:
    """Return the INSERT of rows of all `tables`; its parameters are `parameters_of` the rows.

    If it `is_again` tried, a row with the same key stays as it is.
    """
    *others, last = (_insert(table, is_again) for table in tables)
    return last.add_cte(*(one.cte(f"into_{one.table.name}") for one in others))


def parameters_of(
    rows: Mapping[Table, Sequence[Mapping[str, Any]]], names: Sequence[str] | None = None
) -> dict[str, list[Any]]:
    """Return the arrays of the rows' values for the columns `names`, by default all columns of each table."""
    return {
        _name(table, name): [row[name] for row in of_table]
        for table, of_table in rows.items()
        for name in names or table.c.keys()
    }


def given_rows(table: Table, names: Sequence[str]) -> TableValuedAlias:
    """Return the rows given for some columns of `table` as a FROM; `n` is the number of a row, from 1."""
    # An array of VARCHAR(n) would cut a longer text; a column refuses it.
    types = [Text() if isinstance(table.c[name].type, String) else table.c[name].type for name in names]
    arrays = [bindparam(_name(table, name), type_=ARRAY(kind)) for name, kind in zip(names, types, strict=True)]
    columns = [column(name, kind) for name, kind in zip(names, types, strict=True)]
    return func.unnest(*arrays).table_valued(*columns, with_ordinality="n", name=f"given_{table.name}").render_derived()


def _insert(table: Table, is_again: bool) -> Insert:
    names = table.c.keys()
    rows = given_rows(table, names)
    statement = insert(table).from_select(names, select(*(rows.c[name] for name in names)))
    return statement.on_conflict_do_nothing() if is_again else statement


def _name(table: Table, name: str) -> str:
    return f"{table.name}_{name}"


Rows = dict[Table, list[dict[str, Any]]]

_MAX_TOGETHER = 64
_MAX_WRITING = 4
"""Transactions that run at once on PostgreSQL: its pool keeps this number of connections open."""


class GroupCommit:
    """Inserts the rows of many callers in few transactions: of each caller's rows all, or none."""

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
            SQLAlchemyError: a row is invalid, or the database fails.
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
        finally:  # Before another insert runs, which relies on the tasks that it finds here.
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
