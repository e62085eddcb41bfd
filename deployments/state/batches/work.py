"""Batches for their coordinator: claimed, validated, done line by line, sealed, finished.

Every change is a step of `ledger` in one transaction, and needs the newest claim. The content of lines is in the object
store; the database has only their places and counts.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.batches import ledger
from deployments.state.batches.ledger import BatchState
from deployments.state.batches.rows import (
    Batch,
    Segment,
    StoredSegment,
    pack_entries,
    state_of,
    unpack_entries,
    values_of,
)
from deployments.state.batches.store import BatchStore, find_row, write_row
from deployments.state.database.clock import PastClock, uptime
from deployments.state.database.queues import LeaseWatch, may_be_free
from deployments.state.database.tables.content import ENDED, batch_segments, batches, files
from deployments.state.database.tables.service import api_keys
from deployments.state.encryption.vault import lock_account
from deployments.state.files.store import record_file
from deployments.state.identity.principal import principal_of
from deployments.state.usage.store import add_lines
from deployments.state.webhooks.queue import enqueue


class TooManyTokens(Exception):
    """The unfinished batches of an account would hold too many tokens."""


class BatchWork:
    """The work on the batches of one database. `uptime` counts seconds, independent of the wall clock.

    Every method with an `epoch` raises Fenced if that claim is not the newest.
    """

    def __init__(self, store: BatchStore, uptime: Callable[[], float] = uptime, region: str = "") -> None:
        """Take the batches of keys that may run in `region`; it is empty where there is only one."""
        self.uptime = uptime
        self._region = region
        self._store = store
        self._database = store.database
        self._watch = LeaseWatch(uptime)
        self._past = PastClock(store.clock, uptime)

    async def claim(self, lease_s: float, running: Sequence[Batch] = (), *, only_first: bool = False) -> Batch | None:
        """Return a batch under a new claim, None if there is nothing to do.

        The caller's `running` batches stay out, even if a jump of the clock has ended their claims. The account with
        the fewest running batches comes first, then the batch that has waited longest. `only_first` leaves out accounts
        with a running batch.
        """
        busy = [batch.account for batch in running]
        free = await self._free(lease_s, [batch.batch_id for batch in running])
        for batch_id, account in sorted(free, key=lambda one: busy.count(one[1])):
            if only_first and account in busy:
                break
            async with self._database.write() as connection:
                # A transaction that is changing this batch, or was stopped meanwhile, delays no other batch.
                query = select(batches).where(batches.c.batch_id == batch_id).with_for_update(skip_locked=True)
                row = (await connection.execute(query)).mappings().one_or_none()
                if row is None:
                    continue
                before = state_of(dict(row))
                lease = (before.epoch, before.lease_until)
                is_abandoned = self._watch.is_abandoned((batch_id, account), lease, lease_s)
                now, past = self._store.clock(), self._past()
                state = ledger.claim(before, now, lease_s, is_abandoned=is_abandoned, past=past)
                if state is None:
                    continue
                await write_row(connection, batch_id, values_of(state))
            return await self._store.to_batch({**row, **values_of(state)})
        return None

    async def _free(self, lease_s: float, except_for: Sequence[str]) -> list[tuple[str, str]]:
        """Return ids and accounts of the batches whose claim has ended or is abandoned."""
        now = self._store.clock()
        columns = (batches.c.batch_id, batches.c.account, batches.c.epoch, batches.c.lease_until)
        query = select(batches.c.principal, *columns).where(
            batches.c.status.not_in(ENDED),
            batches.c.batch_id.not_in(except_for),
            may_be_free(batches.c.lease_until, now, lease_s),
            or_(
                batches.c.paused_at.is_(None),
                batches.c.status.not_in(("validating", "in_progress")),
                batches.c.expires_at <= now,
                and_(batches.c.num_total > 0, batches.c.num_completed + batches.c.num_failed >= batches.c.num_total),
            ),
        )
        rows = (await self._database.fetch(query.order_by(batches.c.created_at).limit(1000))).all()
        found = [row for principal, *row in rows if principal_of(principal).may_run_in(self._region)]
        return [(batch_id, account) for batch_id, account, _, _ in self._watch.free(found, now, lease_s)]

    async def renew(self, batch_id: str, epoch: int, lease_s: float, elapsed_s: float) -> BatchState:
        """Renew a claim; return the batch's state, which may have become `cancelling`.

        `elapsed_s` is the batch's elapsed time: its time at the claim, and the holder's uptime since.
        """
        now = self._store.clock()
        return await self._change(batch_id, lambda s: ledger.renew(s, epoch, now, lease_s, elapsed_s))

    async def look(self, batch_id: str) -> BatchState:
        """Return the state of a batch."""
        async with self._database.read() as connection:
            return state_of(await find_row(connection, select(batches).where(batches.c.batch_id == batch_id)))

    async def is_key_revoked(self, key_id: str) -> bool:
        """Return whether an API key is revoked."""
        query = select(api_keys.c.revoked_at).where(api_keys.c.key_id == key_id)
        return (await self._database.fetch(query)).scalar() is not None

    async def release(self, batch_id: str, epoch: int) -> BatchState:
        """Give up a claim, so that the batch can be claimed at once."""
        return await self._change(batch_id, lambda s: ledger.release(s, epoch))

    async def begin(
        self, batch: Batch, epoch: int, num_total: int, enqueued_tokens: int, max_tokens: int | None = None
    ) -> BatchState:
        """Note that a batch is valid, with `num_total` lines, which may use `enqueued_tokens`.

        Raises:
            TooManyTokens: the account's unfinished batches would then hold more than `max_tokens`.
        """

        async def check_room(connection: AsyncConnection) -> None:
            if max_tokens is None:
                return
            await lock_account(connection, batch.account)  # Its other batches may be validated at the same time.
            others = select(func.coalesce(func.sum(batches.c.enqueued_tokens), 0)).where(
                batches.c.account == batch.account, batches.c.status.not_in(ENDED), batches.c.batch_id != batch.batch_id
            )
            if int(await connection.scalar(others) or 0) + enqueued_tokens > max_tokens:
                raise TooManyTokens

        return await self._change(
            batch.batch_id,
            lambda s: ledger.begin(s, epoch, self._store.clock(), num_total),
            check_room,
            enqueued_tokens=enqueued_tokens,
        )

    async def fail(self, batch_id: str, epoch: int, errors: list[dict[str, Any]]) -> BatchState:
        """Note that a batch is invalid."""
        return await self._change(batch_id, lambda s: ledger.fail(s, epoch, self._store.clock()), errors=errors)

    async def commit(self, batch_id: str, epoch: int, segment: Segment) -> tuple[BatchState, set[int]]:
        """Add a segment's outcomes to the batch, to the account's usage and to the request log.

        Return the state, and the lines whose outcomes were accepted.

        Raises:
            Fenced: the claim is not the newest, or the outcomes are sealed; no outcome was accepted.
        """
        async with self._database.write() as connection:
            row = await find_row(connection, select(batches).where(batches.c.batch_id == batch_id).with_for_update())
            state, accepted = ledger.commit(state_of(row), epoch, segment.outcomes)
            if not accepted:
                return state, set()
            await write_row(connection, batch_id, values_of(state))
            lines = {outcome.line for outcome in accepted}
            stored = {
                "segment_id": segment.segment_id,
                "batch_id": batch_id,
                "epoch": epoch,
                "object_key": segment.object_key,
                "num_bytes": segment.num_bytes,
                "entries": pack_entries(entry for entry in segment.entries if entry.line in lines),
                "wrapped_key": segment.wrapped_key,
            }
            await connection.execute(insert(batch_segments).values(stored))
            pairs = zip(segment.outcomes, segment.records, strict=True)
            records = {outcome.line: record for outcome, record in pairs if outcome.line in lines}
            await add_lines(connection, self._database, batch_id, records.items())
        return state, lines

    async def seal(self, batch_id: str, epoch: int) -> BatchState:
        """Seal the outcomes if the batch is complete, over its time or being cancelled."""
        return await self._change(batch_id, lambda s: ledger.seal(s, epoch, self._store.clock()))

    async def lose(self, batch_id: str, epoch: int, errors: list[dict[str, Any]]) -> BatchState:
        """Note that the input of a batch is lost, and seal its outcomes."""
        return await self._change(batch_id, lambda s: ledger.lose(s, epoch, self._store.clock()), errors=errors)

    async def segments(self, batch_id: str) -> list[StoredSegment]:
        """Return the segments of a batch."""
        query = select(batch_segments).where(batch_segments.c.batch_id == batch_id)
        rows = (await self._database.fetch(query)).mappings().all()
        names = ("segment_id", "object_key", "num_bytes", "wrapped_key")
        return [
            StoredSegment(**{name: row[name] for name in names}, entries=unpack_entries(row["entries"])) for row in rows
        ]

    async def finish(
        self,
        batch_id: str,
        epoch: int,
        output: Mapping[str, Any] | None,
        errors: Mapping[str, Any] | None,
        *,
        num_lost: int = 0,
        input_kept_s: float | None,
    ) -> list[str]:
        """Finish a batch in one transaction: add its files, delete its segments, and keep its input for longer.

        `num_lost` completed lines have lost their answers. The input is kept for `input_kept_s` from now, unless its
        uploader wanted less or it lives longer anyway; None leaves it. Return the keys of the objects without a row.
        """
        async with self._database.write() as connection:
            row = await find_row(connection, select(batches).where(batches.c.batch_id == batch_id).with_for_update())
            is_lost, now = row["errors"] is not None, self._store.clock()
            state = ledger.finish(state_of(row), epoch, now, is_lost=is_lost, num_lost=num_lost)
            for file in (output, errors):
                if file is not None:
                    await record_file(connection, file)
            names = {
                "output_file_id": None if output is None else output["file_id"],
                "error_file_id": None if errors is None else errors["file_id"],
            }
            await write_row(connection, batch_id, {**values_of(state), **names})
            await self._announce(connection, row, state)
            return await self._clean_up(connection, row, input_kept_s)

    async def destroy_leftovers(self, batch_id: str, *, input_kept_s: float | None) -> list[str]:
        """Delete the segments of a batch that has ended, and keep its input; return the same as `finish`."""
        async with self._database.write() as connection:
            row = await find_row(connection, select(batches).where(batches.c.batch_id == batch_id))
            return await self._clean_up(connection, row, input_kept_s)

    async def _clean_up(
        self, connection: AsyncConnection, row: Mapping[str, Any], input_kept_s: float | None
    ) -> list[str]:
        """Delete the rows of a batch's segments, and keep its input; return the keys of the objects without a row."""
        of_batch = batch_segments.c.batch_id == row["batch_id"]
        keys = list((await connection.scalars(select(batch_segments.c.object_key).where(of_batch))).all())
        await connection.execute(delete(batch_segments).where(of_batch))
        if input_kept_s is not None:
            until = self._store.clock() + input_kept_s
            # An invalid batch may name a file of another account as its input, or a file that is no input.
            of_input = and_(
                files.c.file_id == row["input_file_id"],
                files.c.account == row["account"],
                files.c.purpose == "batch",
                files.c.expires_at < until,
                files.c.expires_at - files.c.created_at >= input_kept_s - 1,  # Its uploader wanted no less.
            )
            await connection.execute(update(files).where(of_input).values(expires_at=until))
        return keys

    async def known_segments(self, object_keys: Sequence[str]) -> set[str]:
        """Return the keys of `object_keys` that have a row."""
        query = select(batch_segments.c.object_key).where(batch_segments.c.object_key.in_(object_keys))
        return set((await self._database.fetch(query)).scalars().all())

    async def _change(
        self,
        batch_id: str,
        step: Callable[[BatchState], BatchState],
        check: Callable[[AsyncConnection], Awaitable[None]] | None = None,
        **more: Any,
    ) -> BatchState:
        async with self._database.write() as connection:
            if check is not None:
                await check(connection)
            row = await find_row(connection, select(batches).where(batches.c.batch_id == batch_id).with_for_update())
            before = state_of(dict(row))
            state = step(before)
            if state != before or more:
                await write_row(connection, batch_id, {**values_of(state), **more})
            if not before.has_ended:
                await self._announce(connection, row, state)
        return state

    async def _announce(self, connection: AsyncConnection, row: Mapping[str, Any], state: BatchState) -> None:
        """Put the end of a batch into the queue of webhooks, if it has ended."""
        await enqueue(connection, row["account"], f"batch.{state.status}", row["batch_id"], self._store.clock())
