"""Queries that responses and conversations share: items at the end of a conversation, reads of bounded size.

Items are added and taken back in the transaction of a turn, each with a key of its own.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import orjson
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Insert,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.bulk_insert import given_rows, parameters_of
from deployments.state.database.connection import Database
from deployments.state.database.queries import clean_id
from deployments.state.database.tables.responses import conversation_items as items_table
from deployments.state.database.tables.responses import conversations as table
from deployments.state.encryption.sealing import AccountKey
from deployments.state.responses.values import MAX_READ_BYTES, Item, TooMuchToRead

_ITEM = b"conversation item"
_SWEPT_AT_ONCE = 500
_GIVEN = ("item_id", "wrapped_key", "sealed_item")


def append_items(
    connection: Connection,
    account_key: AccountKey,
    account: str,
    conversation_id: str,
    items: Sequence[Item],
    expires_at: float,
) -> list[Item]:
    """Add items at the end of a conversation and extend its expiry; return the stored items, none if it is gone."""
    where = (table.c.conversation_id == clean_id(conversation_id), table.c.account == account)
    statement = update(table).where(*where, table.c.expires_at < expires_at).values(expires_at=expires_at)
    connection.execute(statement)
    advanced = update(table).where(*where).values(next_position=table.c.next_position + len(items))
    end = connection.execute(advanced.returning(table.c.next_position)).scalar()
    if end is None or not items:
        return []
    kept = _with_free_ids(connection, conversation_id, items)
    rows = _item_rows(account_key, conversation_id, kept)
    positioned = [{**row, "position": position} for position, row in enumerate(rows, end - len(items))]
    connection.execute(insert(items_table), positioned)
    return kept


def with_appended_items(statement: Insert) -> Insert:
    """Return `statement` for PostgreSQL, extended by the inserts of `append_items`; an id that is taken fails it.

    Its additional parameters are `appended_parameters`.
    """
    num_items = bindparam("num_items", type_=BigInteger)
    moved = (
        update(table)
        .where(table.c.conversation_id == bindparam("to_conversation"), table.c.account == bindparam("of_account"))
        .values(
            next_position=table.c.next_position + num_items,
            expires_at=func.greatest(table.c.expires_at, bindparam("extended_to", type_=Double)),
        )
        .returning(table.c.conversation_id, (table.c.next_position - num_items).label("first"))
        .cte("moved")
    )
    rows = given_rows(items_table, _GIVEN)
    columns = (moved.c.conversation_id, moved.c.first + rows.c.n - 1, *(rows.c[name] for name in _GIVEN))
    names = ["conversation_id", "position", *_GIVEN]
    added = insert(items_table).from_select(names, select(*columns).select_from(rows.join(moved, true())))
    return statement.add_cte(moved, added.cte("appended"))


def appended_parameters(
    account_key: AccountKey, account: str, conversation_id: str, items: Sequence[Item], expires_at: float
) -> dict[str, Any]:
    """Return the parameters of `with_appended_items`."""
    rows = _item_rows(account_key, conversation_id, items)
    return {
        "to_conversation": clean_id(conversation_id),
        "of_account": account,
        "num_items": len(items),
        "extended_to": expires_at,
        **parameters_of({items_table: rows}, _GIVEN),
    }


def _item_rows(account_key: AccountKey, conversation_id: str, items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the items' rows, without their positions."""
    rows = []
    for item in items:
        key, wrapped = account_key.new_object(f"{conversation_id}/{item['id']}")
        row = {"conversation_id": conversation_id, "item_id": item["id"], "wrapped_key": wrapped}
        rows.append({**row, "sealed_item": key.seal(orjson.dumps(item), _ITEM)})
    return rows


def remove_items(connection: Connection, conversation_id: str, items: Sequence[Item]) -> None:
    """Delete items from a conversation, if they are there."""
    ids = [item["id"] for item in items]
    where = (items_table.c.conversation_id == clean_id(conversation_id), items_table.c.item_id.in_(ids))
    connection.execute(delete(items_table).where(*where))


def _with_free_ids(connection: Connection, conversation_id: str, items: Sequence[Item]) -> list[Item]:
    query = select(items_table.c.item_id).where(
        items_table.c.conversation_id == conversation_id, items_table.c.item_id.in_([item["id"] for item in items])
    )
    taken = set(connection.scalars(query).all())
    kept = []
    for item in items:
        if item["id"] in taken:
            prefix = item["id"].partition("_")[0][:8]
            item = {**item, "id": f"{prefix}_{secrets.token_hex(16)}"}
        taken.add(item["id"])
        kept.append(item)
    return kept


def item_of(account_key: AccountKey, row: dict[str, Any]) -> Item:
    """Return the item in a row."""
    key = account_key.open_object(f"{row['conversation_id']}/{row['item_id']}", row["wrapped_key"])
    item: Item = orjson.loads(key.open(row["sealed_item"], _ITEM))
    return item


async def sweep(
    database: Database, query: Select[Any], destroy: Callable[[AsyncConnection, list[str]], Awaitable[None]]
) -> int:
    """Destroy what has the ids that `query` finds, some at once, until it finds none; return how many."""
    total = 0
    while True:
        async with database.write() as connection:
            ids = list((await connection.scalars(query.limit(_SWEPT_AT_ONCE))).all())
            await destroy(connection, ids)
        total += len(ids)
        if not ids:
            return total


Row = TypeVar("Row")


def beside(content: Column[Any]) -> list[Column[Any]]:
    """Return the other columns of a table with a column of content."""
    return [column for column in content.table.c if column is not content]


def bounded(query: Select[Any], content: Column[Any]) -> Select[Any]:
    """Return the query with a column of content, which is NULL in every row if the rows hold more than MAX_READ_BYTES.

    A database knows the length of a value without reading it, so nothing is loaded then.
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
