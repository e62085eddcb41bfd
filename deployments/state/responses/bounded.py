"""Reads of stored content whose size is known before it is loaded."""

from collections.abc import Iterable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, case, func

from deployments.state.responses.values import MAX_READ_BYTES, TooMuchToRead

Row = TypeVar("Row")


def bounded(content: ColumnElement[Any], found: Select[Any]) -> ColumnElement[Any]:
    """Return a column of content as a query reads it: NULL in every row if all that is `found` is too much.

    A database knows how long a value is without reading it, so that nothing is loaded then.
    """
    size = func.coalesce(func.sum(func.length(content)), 0)
    total = found.order_by(None).with_only_columns(size, maintain_column_froms=True).scalar_subquery()
    return case((total <= MAX_READ_BYTES, content), else_=None)


def checked(rows: Iterable[Row], name: str) -> list[Row]:
    """Return the rows of a query whose column `name` is `bounded`.

    Raises:
        TooMuchToRead: they hold more than MAX_READ_BYTES together.
    """
    found = list(rows)
    if any(row[name] is None for row in found):  # type: ignore[index]
        raise TooMuchToRead
    return found
