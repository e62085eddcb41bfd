"""Reads of stored content whose size is known before it is loaded."""

from collections.abc import Iterable
from typing import Any, TypeVar

from sqlalchemy import Column, Select, case, func

from deployments.state.responses.values import MAX_READ_BYTES, TooMuchToRead

Row = TypeVar("Row")


def beside(content: Column[Any]) -> list[Column[Any]]:
    """Return the other columns of a table with a column of content."""
    return [column for column in content.table.c if column is not content]


def bounded(query: Select[Any], content: Column[Any]) -> Select[Any]:
    """Return the query with a column of content too: NULL in every row if all that it finds is too much.

    A database knows how long a value is without reading it, so that nothing is loaded then.
    """
    size = func.coalesce(func.sum(func.length(content)), 0)
    total = query.order_by(None).with_only_columns(size, maintain_column_froms=True).scalar_subquery()
    return query.add_columns(case((total <= MAX_READ_BYTES, content), else_=None).label(content.name))


def checked(rows: Iterable[Row], name: str) -> list[Row]:
    """Return the rows of a query with a `bounded` column `name`.

    Raises:
        TooMuchToRead: they hold more than MAX_READ_BYTES together.
    """
    found = list(rows)
    if any(row[name] is None for row in found):  # type: ignore[index]
        raise TooMuchToRead
    return found
