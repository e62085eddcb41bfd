"""Background responses: the events that a runner writes, under a lease that any replica may take over.

The process that runs a response holds its epoch. Every write checks the epoch in its own transaction, so a runner that
only seemed dead cannot write any more once another has begun.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.queries import clean_id, id_groups
from deployments.state.database.queues import Lane, LeaseWatch, Turns
from deployments.state.database.tables.responses import response_events as events_table
from deployments.state.database.tables.responses import response_jobs as jobs
from deployments.state.database.tables.responses import responses
from deployments.state.encryption.sealing import DataKey
from deployments.state.encryption.vault import Vault
from deployments.state.identity.principal import principal_of
from deployments.state.responses.queries import append_items
from deployments.state.responses.store import UNFINISHED, index_items, new_row, open_turn, seal_turn
from deployments.state.responses.values import ClaimedResponse, Item, LeaseLost, StoredEvents, StoredTurn
from deployments.state.webhooks.queue import enqueue

_JOB = b"response job"
_LINE_END = b"\n"
_TURNS = Turns("background", jobs.c.account, jobs.c.key_id, jobs.c.lease_until)


class BackgroundStore:
    """The background responses of one database."""

    def __init__(
        self,
        database: Database,
        vault: Vault,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        region: str = "",
    ) -> None:
        """Take over the responses of keys that may run in `region`, empty if there is only one."""
        self._region = region
        self._database = database
        self._vault = vault
        self._clock = clock
        self._watch = LeaseWatch(monotonic)
        self._keys: dict[str, DataKey] = {}

    async def start(
        self,
        account: str,
        turn: StoredTurn,
        job: Item,
        *,
        key_id: str,
        events: Sequence[bytes],
        expires_at: float,
        lease_s: float,
    ) -> int | None:
        """Store a response that begins; return the epoch of its runner, the caller, or None if it is stored already."""
        account_key = await self._vault.account_key(account)
        row = new_row(account_key, account, turn, expires_at)
        key = self._keys[turn.id] = account_key.open_object(turn.id, row["wrapped_key"])
        begun = {
            "response_id": turn.id,
            "account": account,
            "key_id": key_id,
            "epoch": 1,
            "lease_until": self._clock() + lease_s,
            "is_cancelled": False,
            "num_events": len(events),
            "sealed_job": key.seal(orjson.dumps(job), _JOB),
        }
        async with self._database.write() as connection:
            stored = await connection.execute(self._database.insert_or_ignore(responses).values(row))
            if not stored.rowcount:
                del self._keys[turn.id]
                return None
            await connection.execute(insert(jobs).values(begun))
            await connection.execute(insert(events_table).values(_events_row(key, turn.id, 0, events)))
        return 1

    async def append(
        self,
        account: str,
        response_id: str,
        epoch: int,
        events: Sequence[bytes],
        *,
        journal: Sequence[bytes] = (),
        status: str,
        lease_s: float,
    ) -> bool:
        """Store more events, or none, and renew the lease; return whether cancelling was requested.

        `journal` is stored with the events until the response has ended.

        Raises:
            LeaseLost: another epoch has begun, or the response is gone.
        """
        values = {"lease_until": self._clock() + lease_s}
        async with self._database.write() as connection:
            is_cancelled = await self._write(connection, account, response_id, epoch, events, journal, values)
            if status != "in_progress" or events:
                statement = update(responses).where(responses.c.response_id == response_id)
                await connection.execute(statement.where(responses.c.status != status).values(status=status))
        return is_cancelled

    async def _write(
        self,
        connection: AsyncConnection,
        account: str,
        response_id: str,
        epoch: int,
        events: Sequence[bytes],
        journal: Sequence[bytes],
        values: dict[str, Any],
    ) -> bool:
        """Add events under the epoch; return whether cancelling was requested."""
        statement = update(jobs).where(jobs.c.response_id == response_id, jobs.c.epoch == epoch)
        statement = statement.values(num_events=jobs.c.num_events + len(events), **values)
        found = (await connection.execute(statement.returning(jobs.c.num_events, jobs.c.is_cancelled))).one_or_none()
        if found is None:
            self._keys.pop(response_id, None)
            raise LeaseLost
        if events:
            key = await self._key(connection, account, response_id)
            row = _events_row(key, response_id, found.num_events - len(events), events, journal)
            await connection.execute(insert(events_table).values(row))
        return bool(found.is_cancelled)

    async def _key(self, connection: AsyncConnection, account: str, response_id: str) -> DataKey:
        key = self._keys.get(response_id)
        if key is None:
            query = select(responses.c.wrapped_key).where(responses.c.response_id == response_id)
            wrapped = (await connection.execute(query)).scalar_one()
            key = self._keys[response_id] = (await self._vault.account_key(account)).open_object(response_id, wrapped)
        return key

    async def finish(
        self, account: str, turn: StoredTurn, epoch: int, events: Sequence[bytes], *, conversation_id: str | None = None
    ) -> None:
        """Store the last events and the finished response.

        Raises:
            LeaseLost: another epoch has begun, or the response is gone.
        """
        account_key = await self._vault.account_key(account)
        async with self._database.write() as connection:
            await self._write(connection, account, turn.id, epoch, events, (), {})
            key = await self._key(connection, account, turn.id)
            statement = update(responses).where(responses.c.response_id == turn.id).values(seal_turn(key, turn))
            expires_at = (await connection.execute(statement.returning(responses.c.expires_at))).scalar_one()
            await connection.execute(delete(jobs).where(jobs.c.response_id == turn.id))
            journals = update(events_table).where(events_table.c.response_id == turn.id)
            await connection.execute(journals.values(sealed_journal=None))
            await connection.run_sync(index_items, turn)
            if conversation_id is not None:
                await connection.run_sync(append_items, account_key, account, conversation_id, turn.items, expires_at)
            await enqueue(connection, account, f"response.{turn.response.get('status')}", turn.id, self._clock())
        self._keys.pop(turn.id, None)

    async def follow(self, account: str, response_id: str, after: int) -> StoredEvents | None:
        """Return the events numbered above `after`, None if the account has no such response."""
        response_id = clean_id(response_id)
        query = select(responses.c.wrapped_key, responses.c.status).where(
            responses.c.response_id == response_id,
            responses.c.account == account,
            responses.c.expires_at > self._clock(),
        )
        columns = (events_table.c.response_id, events_table.c.first, events_table.c.sealed_events)
        rows_query = select(*columns).where(events_table.c.response_id == response_id, events_table.c.last > after)
        async with self._database.read() as connection:
            found = (await connection.execute(query)).one_or_none()
            if found is None:
                return None
            rows = (await connection.execute(rows_query.order_by(events_table.c.first))).mappings().all()
        key = (await self._vault.account_key(account)).open_object(response_id, found.wrapped_key)
        events = [event for row in rows for event in _open_events(key, dict(row), after)]
        return StoredEvents(events, is_running=found.status in UNFINISHED)

    async def cancel(self, account: str, response_id: str) -> bool:
        """Request the cancelling of a response; return whether it was running."""
        owned = select(responses.c.response_id).where(responses.c.account == account)
        statement = update(jobs).where(jobs.c.response_id == clean_id(response_id), jobs.c.response_id.in_(owned))
        return bool((await self._database.execute(statement.values(is_cancelled=True))).rowcount)

    async def release(self, response_id: str, epoch: int) -> None:
        """Give up the lease, so that another process can take over at once."""
        self._keys.pop(response_id, None)
        statement = update(jobs).where(jobs.c.response_id == response_id, jobs.c.epoch == epoch)
        await self._database.execute(statement.values(lease_until=0.0))

    async def claim(self, lease_s: float) -> ClaimedResponse | None:
        """Take over a response without a living runner, of the account whose turn it is; None if there is none."""
        now, lease = self._clock(), (jobs.c.epoch, jobs.c.lease_until)
        await self._watch.end_abandoned(self._database, [jobs.c.response_id], lease, now, lease_s)
        async with self._database.read() as connection:
            lanes = await _TURNS.lanes(connection, jobs.c.lease_until <= now, jobs.c.response_id, *lease)
        lane = next(iter(await self._of_region(lanes)), None)
        if lane is None:
            return None
        response_id, epoch, lease_until = (lane.first[name] for name in ("response_id", "epoch", "lease_until"))
        where = (jobs.c.response_id == response_id, jobs.c.epoch == epoch, jobs.c.lease_until == lease_until)
        values = {"epoch": epoch + 1, "lease_until": now + lease_s}
        async with self._database.write() as connection:
            claimed = await connection.execute(update(jobs).where(*where).values(values).returning(jobs))
            job = claimed.mappings().one_or_none()
            if job is None:  # Another process has claimed it.
                return None
            await _TURNS.note_served(connection, self._database, [lane])
            return await self._take_over(connection, dict(job))

    async def _of_region(self, lanes: Sequence[Lane]) -> Sequence[Lane]:
        """Return the lanes that this region may serve; the regions of a key are sealed in its jobs."""
        if not self._region:
            return lanes
        columns = (jobs.c.response_id, jobs.c.sealed_job, responses.c.account, responses.c.wrapped_key)
        query = select(*columns).join(responses, responses.c.response_id == jobs.c.response_id)
        own = set()
        for ids in id_groups([lane.first["response_id"] for lane in lanes]):
            rows = (await self._database.fetch(query.where(jobs.c.response_id.in_(ids)))).all()
            for response_id, sealed, account, wrapped in rows:
                key = (await self._vault.account_key(account)).open_object(response_id, wrapped)
                if principal_of(orjson.loads(key.open(sealed, _JOB))["principal"]).may_run_in(self._region):
                    own.add(response_id)
        return [lane for lane in lanes if lane.first["response_id"] in own]

    async def _take_over(self, connection: AsyncConnection, job: dict[str, Any]) -> ClaimedResponse:
        response_id = job["response_id"]
        query = select(responses).where(responses.c.response_id == response_id)
        row = dict((await connection.execute(query)).mappings().one())
        account_key = await self._vault.account_key(row["account"])
        key = self._keys[response_id] = account_key.open_object(response_id, row["wrapped_key"])
        kept = select(events_table).where(events_table.c.response_id == response_id).order_by(events_table.c.first)
        rows = [dict(one) for one in (await connection.execute(kept)).mappings()]
        return ClaimedResponse(
            account=row["account"],
            turn=open_turn(account_key, row),
            job=orjson.loads(key.open(job["sealed_job"], _JOB)),
            epoch=job["epoch"],
            events=[event for one in rows for event in _open_events(key, one, -1)],
            journal=[entry for one in rows for entry in _open_journal(key, one)],
            is_cancelled=job["is_cancelled"],
        )


def _events_row(
    key: DataKey, response_id: str, first: int, events: Sequence[bytes], journal: Sequence[bytes] = ()
) -> dict[str, Any]:
    return {
        "response_id": response_id,
        "first": first,
        "last": first + len(events) - 1,
        "sealed_events": key.seal(_LINE_END.join(events), b"response events %d" % first),
        "sealed_journal": key.seal(_LINE_END.join(journal), b"response journal %d" % first) if journal else None,
    }


def _open_events(key: DataKey, row: dict[str, Any], after: int) -> list[bytes]:
    """Return the events of a row that are numbered above `after`; their JSON has no line breaks."""
    events = key.open(row["sealed_events"], b"response events %d" % row["first"]).split(_LINE_END)
    return events[max(0, after + 1 - row["first"]) :]


def _open_journal(key: DataKey, row: dict[str, Any]) -> list[bytes]:
    if row["sealed_journal"] is None:
        return []
    return key.open(row["sealed_journal"], b"response journal %d" % row["first"]).split(_LINE_END)
