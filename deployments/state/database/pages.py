"""Lists that clients read in pages, by time and id. The id orders rows of the same moment, alike for every page."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Select, and_, or_


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
