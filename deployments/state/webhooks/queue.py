"""The queue of events on their way to endpoints. An event enters it in the transaction in which it happens.

Any number of processes may deliver. A process that takes a delivery moves its next try to LEASE_S later, in case the
process dies: an event arrives at least once, always under the same id.
"""

import random
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from sqlalchemy import and_, bindparam, delete, func, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.audit_log import SERVICE, append_entry
from deployments.state.database.connection import Database
from deployments.state.database.queues import Places, Turns
from deployments.state.database.tables.responses import webhook_deliveries as deliveries
from deployments.state.database.tables.responses import webhook_endpoints as endpoints
from deployments.state.encryption.sealing import SealBroken
from deployments.state.encryption.vault import Vault
from deployments.state.webhooks.rows import EVENT_TYPES, Delivery, Endpoint, Event, endpoint_of, new_event

LEASE_S = 60.0
"""How long one try may take, with all its bookkeeping."""
RETRIED_S = 3 * 86_400.0
"""How long an event is tried."""
DISABLED_AFTER_S = 5 * 86_400.0
"""How long every try of an endpoint must fail before it is disabled."""
MAX_PER_ENDPOINT = 4
"""Events that are on their way to one endpoint at once."""

_TURNS = Turns("webhooks", deliveries.c.account, deliveries.c.endpoint_id, deliveries.c.due_at)
_DELAYS_S = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0)
"""The schedule of Standard Webhooks; the last delay is repeated until RETRIED_S."""
_JITTER = 0.1


class Waiting(NamedTuple):
    """The deliveries in the queue, and the age of the oldest in seconds."""

    num_deliveries: int
    oldest_s: float


async def enqueue(connection: AsyncConnection, account: str, kind: str, object_id: str, at: float) -> None:
    """Put an event into the queue, once for each endpoint of the account that wants it, in the caller's transaction.

    Nothing happens if `kind` is none of EVENT_TYPES, as for an object that has not ended.
    """
    if kind not in EVENT_TYPES:
        return
    query = select(endpoints.c.endpoint_id, endpoints.c.event_types).where(
        endpoints.c.account == account, endpoints.c.is_disabled.is_(False)
    )
    wanting = [row.endpoint_id for row in await connection.execute(query) if kind in row.event_types]
    if not wanting:
        return
    event = new_event(kind, object_id, at)
    values = {**event._asdict(), "account": account, "due_at": at, "num_tries": 0}
    await connection.execute(insert(deliveries), [{**values, "endpoint_id": one} for one in wanting])


class DeliveryQueue:
    """The queue of one database."""

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock

    async def take(self, places: Places, busy: Collection[str] = ()) -> list[Delivery]:
        """Return due deliveries that get one of the places: accounts in turn, and the oldest delivery of each endpoint.

        No delivery is for a `busy` endpoint. The caller has LEASE_S seconds for them.
        """
        now = self._clock()
        async with self._database.read() as connection:
            lanes = await _TURNS.lanes(connection, deliveries.c.due_at <= now, deliveries.c.event_id)
        chosen = places.admit([lane for lane in lanes if lane.lane not in busy])
        if not chosen:
            return []
        names = [(lane.first["event_id"], lane.lane) for lane in chosen]
        is_chosen = tuple_(deliveries.c.event_id, deliveries.c.endpoint_id).in_(names)
        query = select(deliveries).where(is_chosen, deliveries.c.due_at <= now).with_for_update(skip_locked=True)
        async with self._database.write() as connection:
            rows = (await connection.execute(query)).mappings().all()
            if not rows:
                return []
            taken_lanes = {row["endpoint_id"] for row in rows}
            await _TURNS.note_served(connection, self._database, [one for one in chosen if one.lane in taken_lanes])
            await connection.execute(
                update(deliveries)
                .where(deliveries.c.event_id == bindparam("event"), deliveries.c.endpoint_id == bindparam("endpoint"))
                .values(due_at=now + LEASE_S, num_tries=deliveries.c.num_tries + 1),
                [{"event": row["event_id"], "endpoint": row["endpoint_id"]} for row in rows],
            )
            wanted = endpoints.c.endpoint_id.in_({row["endpoint_id"] for row in rows})
            found = (await connection.execute(select(endpoints).where(wanted))).mappings().all()
        known = {row["endpoint_id"]: await self._open(dict(row)) for row in found}
        taken = []
        for row in rows:
            endpoint = known.get(row["endpoint_id"])
            if endpoint is None:  # Deleted while the event happened.
                await self._drop(row["event_id"], row["endpoint_id"])
                continue
            event = Event(*(row[name] for name in Event._fields))
            taken.append(Delivery(event, endpoint, row["num_tries"] + 1))
        return taken

    async def note_delivered(self, delivery: Delivery) -> None:
        """Remove a delivery that its endpoint has acknowledged."""
        async with self._database.write() as connection:
            await connection.execute(delete(deliveries).where(_is(delivery)))
            is_it = and_(
                endpoints.c.endpoint_id == delivery.endpoint.endpoint_id, endpoints.c.failing_since.is_not(None)
            )
            await connection.execute(update(endpoints).where(is_it).values(failing_since=None))

    async def note_failed(self, delivery: Delivery, *, is_gone: bool = False) -> bool:
        """Schedule the next try of a delivery, or drop it after the last; return whether it is dropped.

        An endpoint that `is_gone`, or has failed for DISABLED_AFTER_S, is disabled, and its deliveries are dropped.
        """
        now, endpoint_id = self._clock(), delivery.endpoint.endpoint_id
        jitter = 1 + _JITTER * random.uniform(-1, 1)  # noqa: S311
        delay_s = _DELAYS_S[min(delivery.num_tries, len(_DELAYS_S)) - 1] * jitter
        is_last = now + delay_s > delivery.event.created_at + RETRIED_S
        async with self._database.write() as connection:
            if is_last:
                await connection.execute(delete(deliveries).where(_is(delivery)))
            else:
                await connection.execute(update(deliveries).where(_is(delivery)).values(due_at=now + delay_s))
            since = func.coalesce(endpoints.c.failing_since, now)
            changed = update(endpoints).where(endpoints.c.endpoint_id == endpoint_id).values(failing_since=since)
            failing_since = await connection.scalar(changed.returning(endpoints.c.failing_since))
            is_over = failing_since is not None and now - failing_since >= DISABLED_AFTER_S
            if is_gone or is_over:
                values = {"is_disabled": True, "updated_at": now}
                is_it = endpoints.c.endpoint_id == endpoint_id
                disabled = update(endpoints).where(is_it, endpoints.c.is_disabled.is_(False)).values(values)
                account = await connection.scalar(disabled.returning(endpoints.c.account))
                if account is not None:
                    more = {"account": account, "details": {"fields": ["is_disabled"]}, "clock": self._clock}
                    await append_entry(connection, "webhook_endpoint.updated", SERVICE, endpoint_id, **more)
                await connection.execute(delete(deliveries).where(deliveries.c.endpoint_id == endpoint_id))
        return is_last or is_gone or is_over

    async def waiting(self) -> Waiting:
        """Return the length of the queue and the age of its oldest delivery."""
        query = select(func.count(), func.min(deliveries.c.created_at)).select_from(deliveries)
        count, oldest = (await self._database.fetch(query)).one()
        return Waiting(count, 0.0 if oldest is None else max(0.0, self._clock() - oldest))

    async def _open(self, row: dict[str, Any]) -> Endpoint | None:
        """Return the endpoint of a row; None if it cannot be opened, so that the others go on."""
        try:
            return endpoint_of(row, await self._vault.account_key(row["account"]), self._clock())
        except SealBroken:
            return None

    async def _drop(self, event_id: str, endpoint_id: str) -> None:
        is_it = and_(deliveries.c.event_id == event_id, deliveries.c.endpoint_id == endpoint_id)
        await self._database.execute(delete(deliveries).where(is_it))


def _is(delivery: Delivery) -> Any:
    """Return the condition for a delivery's row, unless another process has taken it since."""
    return and_(
        deliveries.c.event_id == delivery.event.event_id,
        deliveries.c.endpoint_id == delivery.endpoint.endpoint_id,
        deliveries.c.num_tries == delivery.num_tries,
    )
