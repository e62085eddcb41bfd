"""Lists that are read in pages, by time and id: ids make the order of rows of one moment the same for every page."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, and_, or_


class PageOrder:
    """The order of a table's rows by `created_at`, then by their id."""

    def __init__(self, table: Table, id_column: Column[str], *, is_ascending: bool = False) -> None:
        self._keys = (table.c.created_at, id_column)
        self._is_ascending = is_ascending

    def columns(self) -> list[ColumnElement[Any]]:
        """Return what to sort by."""
        return [column.asc() if self._is_ascending else column.desc() for column in self._keys]

    def beyond(self, row: Mapping[str, Any]) -> ColumnElement[bool]:
        """Return the condition that a row comes after this one."""
        at, row_id = self._keys
        then, then_id = row["created_at"], row[row_id.name]
        if self._is_ascending:
            return or_(at > then, and_(at == then, row_id > then_id))
        return or_(at < then, and_(at == then, row_id < then_id))
