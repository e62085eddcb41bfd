"""Parts of queries that all stores share: ids from requests, single rows, pages of a list, rows as values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, or_
from sqlalchemy.ext.asyncio import AsyncConnection

MAX_IDS = 400
"""How many ids one statement carries: SQLite and PostgreSQL bound the parameters of a statement."""


def clean_id(text: str) -> str:
    """Return an id from a request as a database takes it: without NUL, and valid UTF-8."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def id_groups(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in groups of at most MAX_IDS, one group for each statement."""
    for start in range(0, len(ids), MAX_IDS):
        yield ids[start : start + MAX_IDS]


async def one_row(connection: AsyncConnection, query: Select[Any], missing: Exception) -> dict[str, Any]:
    """Return the only row that a query finds, or raise `missing`."""
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise missing
    return dict(row)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: at most `limit` items, after the item with the id `after`, or else the last before `before`."""

    limit: int = 20
    is_ascending: bool = False
    after: str | None = None
    before: str | None = None


async def fetch_page(
    connection: AsyncConnection,
    query: Select[Any],
    id_column: Column[str],
    page: Page,
    missing: Callable[[str], Exception],
    *where: ColumnElement[bool],
    at: Column[float] | None = None,
) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of a page of `query`, narrowed by `where`, and whether there are more.

    Rows are in the order of `at`, by default `created_at`, and of their ids. The item `after` or `before` must be among
    the rows of `query`, but not of `where`: otherwise `missing`, called with its id, is raised.
    """
    is_backward = page.after is None and page.before is not None
    cursor = page.before if is_backward else page.after
    beside = None
    if cursor is not None:
        beside = await one_row(connection, query.where(id_column == clean_id(cursor)), missing(cursor))
    is_ascending = page.is_ascending is not is_backward
    order = (id_column.table.c.created_at if at is None else at, id_column)
    query = rows_after(query.where(*where), order, beside, is_ascending=is_ascending)
    rows = (await connection.execute(query.limit(page.limit + 1))).mappings().all()
    return [dict(row) for row in rows[: page.limit][:: -1 if is_backward else 1]], len(rows) > page.limit


def rows_after(
    query: Select[Any],
    order: tuple[Column[float], Column[str]],
    last: Mapping[str, Any] | None,
    *,
    is_ascending: bool = False,
) -> Select[Any]:
    """Return the query for the rows after the row `last`, if any, in an order by a time and an id."""
    at, row_id = order
    if last is not None:
        then, then_id = last[at.name], last[row_id.name]
        # The first condition is one that an index can find.
        if is_ascending:
            query = query.where(at >= then, or_(at > then, row_id > then_id))
        else:
            query = query.where(at <= then, or_(at < then, row_id < then_id))
    return query.order_by(*(key.asc() if is_ascending else key.desc() for key in order))


def columns_for(kind: type, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that bear the name of a field of the dataclass `kind`."""
    return {field.name: row[field.name] for field in fields(kind) if field.name in row}
