"""Batches as whoever works on them sees them: claimed, validated, done line by line, sealed, ended.

Every change is a step of `ledger` in one transaction, and needs the newest claim. What lines say is in the object
store; here are only places and counts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, delete, func, insert, select
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
    usage_rows,
    values_of,
)
from deployments.state.batches.store import BatchStore, one_row, write_row
from deployments.state.database.batch_status import ENDED
from deployments.state.database.clock import PastClock, uptime
from deployments.state.database.lease_watch import LeaseWatch, may_be_free
from deployments.state.database.tables import api_keys, batch_segments, batches, files, request_log, usage
from deployments.state.files.store import record_file
from deployments.state.identity.principal import principal_of
from deployments.state.usage.store import line_rows


class BatchWork:
    """The work on the batches of one database. `uptime` counts seconds, whatever happens to the wall clock."""

    def __init__(self, store: BatchStore, uptime: Callable[[], float] = uptime) -> None:
        self.uptime = uptime
        self._store = store
        self._database = store.database
        self._watch = LeaseWatch(uptime)
        self._past = PastClock(store.clock, uptime)

    async def claim(self, lease_s: float, running: Sequence[Batch] = ()) -> Batch | None:
        """Return a batch under a new claim, None where there is nothing to do.

        Those that the caller is `running` stay as they are, also where a jump of the clock has ended their claims.
        Accounts that have none of these, or the fewest, come first; then those who have waited longest.
        """
        busy = [batch.account for batch in running]
        free = await self._free(lease_s, [batch.batch_id for batch in running])
        for batch_id, account in sorted(free, key=lambda one: busy.count(one[1])):
            async with self._database.write() as connection:
                # Whoever is just changing it, or was stopped while doing so, holds no other batch up.
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
        """Return ids and accounts of batches whose claim has run out, or was not renewed for its length."""
        now = self._store.clock()
        query = select(batches.c.batch_id, batches.c.account, batches.c.epoch, batches.c.lease_until).where(
            batches.c.status.not_in(ENDED),
            batches.c.batch_id.not_in(except_for),
            may_be_free(batches.c.lease_until, now, lease_s),
        )
        async with self._database.read() as connection:
            found = (await connection.execute(query.order_by(batches.c.created_at).limit(1000))).all()
        return [(batch_id, account) for batch_id, account, _, _ in self._watch.free(found, now, lease_s)]

    async def renew(self, batch_id: str, epoch: int, lease_s: float, elapsed_s: float) -> BatchState:
        """Hold on to a claim; return where the batch is, for it may be on its way to being cancelled.

        `elapsed_s` is how much of the batch's time has passed: what had at the claim, and the holder's uptime since.

        Raises:
            Fenced: the claim is not the newest.
        """
        now = self._store.clock()
        return await self._change(batch_id, lambda s: ledger.renew(s, epoch, now, lease_s, elapsed_s))

    async def look(self, batch_id: str) -> BatchState:
        """Return where a batch is."""
        async with self._database.read() as connection:
            return state_of(await one_row(connection, select(batches).where(batches.c.batch_id == batch_id)))

    async def is_key_revoked(self, key_id: str) -> bool:
        """Say whether an API key has been taken back."""
        query = select(api_keys.c.revoked_at).where(api_keys.c.key_id == key_id)
        async with self._database.read() as connection:
            return await connection.scalar(query) is not None

    async def release(self, batch_id: str, epoch: int) -> BatchState:
        """Give a claim up, so that the batch need not wait for its end.

        Raises:
            Fenced: the claim is not the newest.
        """
        return await self._change(batch_id, lambda s: ledger.release(s, epoch))

    async def begin(self, batch_id: str, epoch: int, num_total: int, enqueued_tokens: int) -> BatchState:
        """Note that a batch was found valid, with so many lines that may take so many tokens.

        Raises:
            Fenced: the claim is not the newest.
        """
        return await self._change(
            batch_id,
            lambda s: ledger.begin(s, epoch, self._store.clock(), num_total),
            enqueued_tokens=enqueued_tokens,
        )

    async def fail(self, batch_id: str, epoch: int, errors: list[dict[str, Any]]) -> BatchState:
        """Note that a batch was found invalid.

        Raises:
            Fenced: the claim is not the newest.
        """
        return await self._change(batch_id, lambda s: ledger.fail(s, epoch, self._store.clock()), errors=errors)

    async def enqueued_tokens(self, account: str) -> int:
        """Return how many tokens the lines of an account's unfinished batches may take."""
        query = select(func.coalesce(func.sum(batches.c.enqueued_tokens), 0)).where(
            batches.c.account == account, batches.c.status.not_in(ENDED)
        )
        async with self._database.read() as connection:
            return int(await connection.scalar(query) or 0)

    async def commit(self, batch_id: str, epoch: int, segment: Segment) -> tuple[BatchState, set[int]]:
        """Add a segment's outcomes, and what they used to the account's usage and the request log.

        Return the state, and the lines whose outcomes counted.

        Raises:
            Fenced: the claim is not the newest, or the outcomes are sealed; nothing of the segment counts.
        """
        async with self._database.write() as connection:
            row = await one_row(connection, select(batches).where(batches.c.batch_id == batch_id).with_for_update())
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
            totals = usage_rows(principal_of(row["principal"]), accepted, self._store.clock())
            key = ["key_id", "day", "model"]
            counts = [c.name for c in usage.c if c.name not in (*key, "account")]
            await connection.execute(self._database.upsert(usage, key, adding=counts), totals)
            pairs = zip(segment.outcomes, segment.records, strict=True)
            records = {outcome.line: record for outcome, record in pairs if outcome.line in lines}
            await connection.execute(insert(request_log), line_rows(batch_id, records.items()))
        return state, lines

    async def seal(self, batch_id: str, epoch: int) -> BatchState:
        """Accept no outcomes any more, where it is time for that.

        Raises:
            Fenced: the claim is not the newest.
        """
        return await self._change(batch_id, lambda s: ledger.seal(s, epoch, self._store.clock()))

    async def lose(self, batch_id: str, epoch: int, errors: list[dict[str, Any]]) -> BatchState:
        """Note that the input of a batch is lost, and accept no outcomes any more.

        Raises:
            Fenced: the claim is not the newest.
        """
        return await self._change(batch_id, lambda s: ledger.lose(s, epoch, self._store.clock()), errors=errors)

    async def segments(self, batch_id: str) -> list[StoredSegment]:
        """Return the segments of a batch."""
        query = select(batch_segments).where(batch_segments.c.batch_id == batch_id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            StoredSegment(
                row["segment_id"],
                row["object_key"],
                row["num_bytes"],
                row["wrapped_key"],
                unpack_entries(row["entries"]),
            )
            for row in rows
        ]

    async def finish(
        self,
        batch_id: str,
        epoch: int,
        output: Mapping[str, Any] | None,
        errors: Mapping[str, Any] | None,
        *,
        num_lost: int = 0,
        drops_input: bool,
    ) -> list[str]:
        """End a batch: its files count, its segments and, if asked for, its input are destroyed, all at once.

        `num_lost` of the completed lines have lost their answers. Return the keys of the objects whose rows are gone.

        Raises:
            Fenced: the claim is not the newest.
        """
        async with self._database.write() as connection:
            row = await one_row(connection, select(batches).where(batches.c.batch_id == batch_id).with_for_update())
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
            return await _destroy(connection, row, drops_input=drops_input)

    async def destroy_leftovers(self, batch_id: str, *, drops_input: bool) -> list[str]:
        """Destroy the segments and, if asked for, the input of a batch that has ended; return as `finish` does."""
        async with self._database.write() as connection:
            row = await one_row(connection, select(batches).where(batches.c.batch_id == batch_id))
            return await _destroy(connection, row, drops_input=drops_input)

    async def known_segments(self, object_keys: Sequence[str]) -> set[str]:
        """Return which of these objects are segments that count."""
        query = select(batch_segments.c.object_key).where(batch_segments.c.object_key.in_(object_keys))
        async with self._database.read() as connection:
            return set((await connection.scalars(query)).all())

    async def _change(self, batch_id: str, step: Callable[[BatchState], BatchState], **more: Any) -> BatchState:
        async with self._database.write() as connection:
            row = await one_row(connection, select(batches).where(batches.c.batch_id == batch_id).with_for_update())
            before = state_of(dict(row))
            state = step(before)
            if state != before or more:
                await write_row(connection, batch_id, {**values_of(state), **more})
        return state


async def _destroy(connection: AsyncConnection, row: Mapping[str, Any], *, drops_input: bool) -> list[str]:
    """Delete the rows of a batch's segments and input; return the keys of their objects."""
    of_batch = batch_segments.c.batch_id == row["batch_id"]
    keys = list((await connection.scalars(select(batch_segments.c.object_key).where(of_batch))).all())
    await connection.execute(delete(batch_segments).where(of_batch))
    if drops_input:
        used = select(batches.c.batch_id).where(
            batches.c.input_file_id == row["input_file_id"],
            batches.c.status.not_in(ENDED),
            batches.c.batch_id != row["batch_id"],
        )
        # What the row names as input may be another account's file, or no input at all: such a batch was invalid.
        of_input = and_(
            files.c.file_id == row["input_file_id"],
            files.c.account == row["account"],
            files.c.purpose == "batch",
            ~used.exists(),
        )
        # Locked first: a batch that is being created on it has then been committed, or finds no file.
        await connection.execute(
            select(files.c.file_id).where(files.c.file_id == row["input_file_id"]).with_for_update()
        )
        keys += (await connection.scalars(select(files.c.object_key).where(of_input))).all()
        await connection.execute(delete(files).where(of_input))
    return keys
