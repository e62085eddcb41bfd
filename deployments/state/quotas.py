"""How many objects an account may have: files, pending uploads, vector stores and conversations.

`files.store` counts the bytes of its files, `item_quota` those of its items.
"""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.tables import conversations, files, uploads, vector_stores


class TooManyObjects(Exception):
    """The account has as many objects as it may, `max_objects`."""

    def __init__(self, max_objects: int) -> None:
        super().__init__(f"The account has {max_objects} objects.")
        self.max_objects = max_objects


async def check_objects(connection: AsyncConnection, account: str, max_objects: int | None, now: float) -> None:
    """Check that an account may have one more object, in a transaction that has locked the account.

    Raises:
        TooManyObjects: it has `max_objects`; None is any number.
    """
    if max_objects is None:
        return
    counts = [
        select(func.count()).where(files.c.account == account),
        select(func.count()).where(
            uploads.c.account == account, uploads.c.status == "pending", uploads.c.kept_until > now
        ),
        select(func.count()).where(
            vector_stores.c.account == account, ~vector_stores.c.is_deleted, ~vector_stores.c.has_expired
        ),
        select(func.count()).where(conversations.c.account == account),
    ]
    first, *others = (count.scalar_subquery() for count in counts)
    if int(await connection.scalar(select(sum(others, first))) or 0) >= max_objects:
        raise TooManyObjects(max_objects)
