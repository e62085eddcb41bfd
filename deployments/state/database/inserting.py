"""Rows of several tables in one statement of PostgreSQL, which needs no transaction around it. Pure.

The rows come as one array for each column: the text of the statement is the same for any number of rows, so that it is
prepared once on each connection and is one message from then on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Insert, String, Table, Text, bindparam, column, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.selectable import TableValuedAlias


def insert_all(tables: Sequence[Table], *, is_again: bool = False) -> Insert:
    """Return the INSERT of rows of all `tables`, whose values are `parameters_of` the rows.

    Where it `is_again` tried, it leaves a row with the same key as it is.
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
    # An array of VARCHAR(n) would cut what is longer; that of a text is refused by the column.
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
