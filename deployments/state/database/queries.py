"""Parts of queries that all stores share: ids from requests, pages of a list, rows as values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Column, Select, and_, or_

MAX_IDS = 400
"""How many ids one statement carries: SQLite and PostgreSQL bound the parameters of a statement."""


def clean_id(text: str) -> str:
    """Return an id from a request as a database takes it: without NUL, and valid UTF-8."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def id_groups(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in groups of at most MAX_IDS, one group for a statement; nothing where there are none."""
    for start in range(0, len(ids), MAX_IDS):
        yield ids[start : start + MAX_IDS]


def page_of(
    query: Select[Any],
    id_column: Column[str],
    limit: int | None,
    after: Mapping[str, Any] | None,
    *,
    is_ascending: bool = False,
) -> Select[Any]:
    """Return the query for a page of `query`, ordered by `created_at` and id: the rows after the row `after`, if any.

    It finds one row more than `limit` where there are more rows than the page holds.
    """
    at = id_column.table.c.created_at
    if after is not None:
        then, then_id = after["created_at"], after[id_column.name]
        is_later = or_(at > then, and_(at == then, id_column > then_id))
        is_earlier = or_(at < then, and_(at == then, id_column < then_id))
        query = query.where(is_later if is_ascending else is_earlier)
    keys = (at, id_column)
    query = query.order_by(*(key.asc() if is_ascending else key.desc() for key in keys))
    return query if limit is None else query.limit(limit + 1)


def columns_for(kind: type, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that bear the name of a field of the dataclass `kind`."""
    return {field.name: row[field.name] for field in fields(kind) if field.name in row}
