"""What an account may store: a number of objects, and bytes of items.

Items are the content of responses, stored chats and conversations. `files.store` counts the bytes of its files.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.tables.content import files, uploads, vector_stores
from deployments.state.database.tables.responses import chat_completions, conversation_items, conversations, responses
from deployments.state.disk import DiskReserve
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers

ROW_BYTES = 512
"""The size of a row beside its content: its ids, its wrapped key and its place in the indexes."""

_MEASURED_S = 60.0
_REFUSED_S = 1.0
_PART = 8


class TooManyObjects(Exception):
    """The account already has `max_objects`."""

    def __init__(self, max_objects: int) -> None:
        super().__init__(f"The account has {max_objects} objects.")
        self.max_objects = max_objects


async def check_objects(connection: AsyncConnection, account: str, max_objects: int | None, now: float) -> None:
    """Check that an account may have another object, in a transaction that has locked the account.

    Raises:
        TooManyObjects: it has `max_objects`, if that is not None.
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


class TooManyItems(Exception):
    """The account's items would hold more than `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The items would hold more than {max_bytes} bytes.")
        self.max_bytes = max_bytes


@dataclass(slots=True)
class _Known:
    """The known bytes of an account: `measured` at a time, and `added` since.

    `writing` of them are being written now, so that a measurement may miss them.
    """

    at: float = float("-inf")
    measured: int = 0
    added: int = 0
    writing: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def total(self) -> int:
        return self.measured + self.added


class ItemQuota:
    """The bytes of items of each account, as far as this process knows them.

    The database is asked once a minute, and again when an eighth of the quota was added here, or the quota is reached.
    So each of several processes may exceed a quota by an eighth.
    """

    def __init__(
        self,
        database: Database,
        tiers: Tiers | None = None,
        disk: DiskReserve | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._tiers = tiers or Tiers()
        self._disk = disk or DiskReserve()
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def check(self, principal: Principal, num_bytes: int) -> None:
        """Count items that are stored later, even if there is no room then; raises the errors of `take`."""
        async with self.take(principal, num_bytes):
            pass

    @asynccontextmanager
    async def take(self, principal: Principal, num_bytes: int) -> AsyncIterator[None]:
        """Count items that the block stores against the `item_bytes` of the account's tier.

        Raises:
            TooManyItems: the account's items would exceed that.
            ReserveReached: a disk has reached its reserve.
            DBAPIError: the database is away.
        """
        await self._disk.check()
        account, max_bytes = principal.account, self._tiers.of(principal.tier).item_bytes
        if max_bytes is None:
            yield
            return
        known = self._known.setdefault(account, _Known())
        num_bytes += ROW_BYTES
        async with known.lock:  # Requests at the same time wait for one measurement.
            age_s = self._clock() - known.at
            is_tight = age_s > _REFUSED_S and known.total + num_bytes > max_bytes
            if age_s > _MEASURED_S or known.added > max_bytes // _PART or is_tight:
                await self._measure(account, known)
            if known.total + num_bytes > max_bytes:
                raise TooManyItems(max_bytes)
            known.added += num_bytes
            known.writing += num_bytes
        try:
            yield
        finally:
            known.writing -= num_bytes

    async def _measure(self, account: str, known: _Known) -> None:
        self._forget()
        queries = _sizes(account)
        total = await self._database.read_at_once(
            lambda connection: sum(int(connection.scalar(query) or 0) for query in queries)
        )
        known.at, known.measured, known.added = self._clock(), total, known.writing

    def _forget(self) -> None:
        """Forget the accounts that have stored nothing for a minute."""
        before = self._clock() - _MEASURED_S
        for account, known in list(self._known.items()):
            if known.at < before and not known.writing and not known.lock.locked():
                del self._known[account]


def _sizes(account: str) -> list[Select[tuple[int]]]:
    """Return the queries for the bytes of an account's responses, stored chats and conversations."""
    # The database reads the length of a content from the head of its row, not from the content.
    of_response = func.length(responses.c.sealed_items) + func.length(responses.c.sealed_response) + ROW_BYTES
    of_chat = func.length(chat_completions.c.sealed_completion) + func.length(chat_completions.c.sealed_messages)
    of_item = func.length(conversation_items.c.sealed_item) + ROW_BYTES
    return [
        select(func.sum(of_response)).where(responses.c.account == account),
        select(func.sum(of_chat + ROW_BYTES)).where(chat_completions.c.account == account),
        select(func.sum(of_item))
        .join(conversations, conversations.c.conversation_id == conversation_items.c.conversation_id)
        .where(conversations.c.account == account),
    ]
