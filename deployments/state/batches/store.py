"""Batches for their accounts: created, found, listed, cancelled. Coordinators use `work` instead.

Every change is a step of `ledger` in one transaction. Metadata of clients is sealed.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import orjson
from sqlalchemy import ColumnElement, Select, and_, func, insert, not_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.audit_log import SERVICE, Actor, append_entry
from deployments.state.batches import ledger
from deployments.state.batches.ledger import BatchState
from deployments.state.batches.rows import Batch, NewBatch, state_of, values_of
from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, columns_for, fetch_page, one_row
from deployments.state.database.tables.content import ENDED, Status, batches, files
from deployments.state.encryption.vault import Vault, lock_account
from deployments.state.identity.principal import principal_of, principal_to_row

StatusFilter = Status | Literal["paused"]
_METADATA = b"batch metadata"
_WITH_LINES: tuple[Status, ...] = ("validating", "in_progress")
"""Only these are paused, as `ledger` defines it."""


class BatchNotFound(LookupError):
    """The account has no such batch."""


class TooManyBatches(Exception):
    """The account already has `limit` unfinished batches."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"There are {limit} batches already.")
        self.limit = limit


class BatchStore:
    """The batches of one database. Any number of processes may hold one."""

    def __init__(
        self, database: Database, vault: Vault, max_unfinished: int = 10, clock: Callable[[], float] = time.time
    ) -> None:
        self.clock = clock
        self.database = database
        self._vault = vault
        self._max_unfinished = max_unfinished

    async def create(self, new: NewBatch) -> Batch:
        """Create a batch, which then waits for its validation; return it.

        Raises:
            TooManyBatches: one of the account's batches must end first.
        """
        account, now = new.principal.account, self.clock()
        batch_id = f"batch_{secrets.token_hex(16)}"
        key, wrapped = (await self._vault.account_key(account)).new_object(batch_id)
        state = BatchState("validating", created_at=now, expires_at=now + new.window_s)
        row = {
            "batch_id": batch_id,
            "account": account,
            "key_id": new.principal.key_id,
            "principal": principal_to_row(new.principal),
            "endpoint": new.endpoint,
            "input_file_id": new.input_file_id,
            "completion_window": new.completion_window,
            "output_expires_after_s": new.output_expires_after_s,
            "wrapped_key": wrapped,
            "sealed_metadata": None if new.metadata is None else key.seal(orjson.dumps(new.metadata), _METADATA),
            "enqueued_tokens": 0,
            **values_of(state),
        }

        async def add(is_again: bool) -> None:
            async with self.database.write() as connection:
                known = select(batches.c.batch_id).where(batches.c.batch_id == batch_id)
                if is_again and await connection.scalar(known) is not None:
                    return
                await self._check_room(connection, account)
                await _lock_input(connection, new.input_file_id, account)
                await connection.execute(insert(batches).values(row))

        await self.database.repeat(add)
        return await self.find(account, batch_id)

    async def find(self, account: str | None, batch_id: str) -> Batch:
        """Return one batch of an account, or of any.

        Raises:
            BatchNotFound: the account has no batch with this id.
        """
        query = _of(account).where(batches.c.batch_id == batch_id)
        async with self.database.read() as connection:
            return await self.to_batch(await find_row(connection, query, batch_id))

    async def list_batches(
        self, account: str | None, limit: int, after: str | None = None, status: StatusFilter | None = None
    ) -> tuple[list[Batch], bool]:
        """Return a page of an account's batches, or of all, newest first, and whether there are more.

        They have the `status` if one is given; a batch that is paused has that status alone.

        Raises:
            BatchNotFound: `after` is none of the batches, whatever their status.
        """
        page = Page(limit, after=after)
        async with self.database.read() as connection:
            rows, has_more = await fetch_page(
                connection, _of(account), batches.c.batch_id, page, BatchNotFound, *_with_status(status)
            )
        return [await self.to_batch(row) for row in rows], has_more

    async def cancel(self, account: str, batch_id: str) -> Batch:
        """Cancel a batch; return it.

        Raises:
            BatchNotFound: the account has no batch with this id.
            CannotCancel: it is being finalized, or has ended in another way.
        """
        return await self._change(batch_id, lambda s: ledger.request_cancel(s, self.clock()), account=account)

    async def cancel_any(self, batch_id: str, by: Actor) -> Batch:
        """Cancel a batch of any account, as `cancel` does."""
        return await self._change(batch_id, lambda s: ledger.request_cancel(s, self.clock()), "batch.cancelled", by)

    async def pause(self, batch_id: str, by: Actor) -> Batch:
        """Pause a batch of any account; return it.

        Raises:
            BatchNotFound: there is no batch with this id.
            CannotPause: it is being finalized or cancelled, or has ended.
        """
        return await self._change(batch_id, lambda s: ledger.pause(s, self.clock()), "batch.paused", by)

    async def resume(self, batch_id: str, by: Actor) -> Batch:
        """Let a batch of any account go on, if it is paused; return it.

        Raises:
            BatchNotFound: there is no batch with this id.
        """
        return await self._change(batch_id, ledger.resume, "batch.resumed", by)

    async def _change(
        self,
        batch_id: str,
        step: Callable[[BatchState], BatchState],
        event: str = "",
        by: Actor = SERVICE,
        account: str | None = None,
    ) -> Batch:
        """Take a step of a batch, with an `event` in the audit log if it is given; return the batch."""
        query = _of(account).where(batches.c.batch_id == batch_id)
        async with self.database.write() as connection:
            row = await find_row(connection, query.with_for_update(), batch_id)
            before = state_of(row)
            state = step(before)
            if state != before:
                await write_row(connection, batch_id, values_of(state))
                if event:
                    await append_entry(connection, event, by, batch_id, account=row["account"], clock=self.clock)
        return await self.to_batch({**row, **values_of(state)})

    async def to_batch(self, row: Mapping[str, Any]) -> Batch:
        """Return the batch of a row."""
        metadata = None
        if row["sealed_metadata"] is not None:
            account_key = await self._vault.account_key(row["account"])
            key = account_key.open_object(row["batch_id"], row["wrapped_key"])
            metadata = orjson.loads(key.open(row["sealed_metadata"], _METADATA))
        opened = {"principal": principal_of(row["principal"]), "metadata": metadata, "state": state_of(row)}
        return Batch(**columns_for(Batch, row) | opened)

    async def _check_room(self, connection: AsyncConnection, account: str) -> None:
        await lock_account(connection, account)
        query = select(func.count()).where(batches.c.account == account, batches.c.status.not_in(ENDED))
        if (await connection.scalar(query) or 0) >= self._max_unfinished:
            raise TooManyBatches(self._max_unfinished)


def _of(account: str | None) -> Select[Any]:
    """Return the query for the batches of an account, or of all."""
    query = select(batches)
    return query if account is None else query.where(batches.c.account == account)


def _with_status(status: StatusFilter | None) -> tuple[ColumnElement[bool], ...]:
    is_paused = and_(batches.c.paused_at.is_not(None), batches.c.status.in_(_WITH_LINES))
    if status is None:
        return ()
    return (is_paused,) if status == "paused" else (batches.c.status == status, not_(is_paused))


async def find_row(connection: AsyncConnection, query: Select[Any], batch_id: str = "") -> dict[str, Any]:
    """Return the only row of a query.

    Raises:
        BatchNotFound: there is none, or `batch_id` cannot be an id.
    """
    if "\0" in batch_id:
        raise BatchNotFound
    return await one_row(connection, query, BatchNotFound())


async def write_row(connection: AsyncConnection, batch_id: str, values: Mapping[str, Any]) -> None:
    """Change columns of a batch."""
    await connection.execute(update(batches).where(batches.c.batch_id == batch_id).values(**values))


async def _lock_input(connection: AsyncConnection, file_id: str, account: str) -> None:
    """Lock the file against deletion until the batch is created. Without a file, the validation fails later."""
    if "\0" not in file_id:
        is_input = files.c.file_id == file_id, files.c.account == account
        await connection.execute(select(files.c.file_id).where(*is_input).with_for_update())
