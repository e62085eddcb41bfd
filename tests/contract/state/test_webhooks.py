"""Webhooks in real databases: each message is delivered at least once, for three days, whatever process dies."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import insert, select

from deployments.state.audit_log import SERVICE, Actor, AuditFilter, AuditLog
from deployments.state.database.connection import Database, connect
from deployments.state.database.queues import Places
from deployments.state.database.tables.responses import webhook_deliveries, webhook_endpoints
from deployments.state.encryption.vault import Vault
from deployments.state.webhooks.queue import (
    DISABLED_AFTER_S,
    LEASE_S,
    MAX_PER_ENDPOINT,
    RETRIED_S,
    DeliveryQueue,
    enqueue,
)
from deployments.state.webhooks.rows import KEPT_SECRET_S, MAX_ENDPOINTS, EndpointMissing, TooManyEndpoints
from deployments.state.webhooks.store import WebhookStore
from tests.twins.gatekeeper import TestClock

URL = "https://receiver.example/hook?token=not-for-logs"
ME, OTHER = "acct", "acct-2"


class Desk:
    """One process over a database."""

    def __init__(self, database: Database, clock: TestClock) -> None:
        vault = Vault(database, b"m" * 32)
        self.database = database
        self.clock = clock
        self.store = WebhookStore(database, vault, clock)
        self.queue = DeliveryQueue(database, vault, clock)

    async def create(self, *types: str, account: str = ME):
        return await self.store.create(account, "mine", URL, types or ("batch.completed",))

    async def happen(self, kind: str = "batch.completed", object_id: str = "batch_1", account: str = ME) -> None:
        async with self.database.write() as connection:
            await enqueue(connection, account, kind, object_id, self.clock())

    async def num_deliveries(self) -> int:
        async with self.database.read() as connection:
            return len((await connection.execute(select(webhook_deliveries))).all())


@pytest.fixture
async def desks(database: Database, database_url: str) -> AsyncIterator[list[Desk]]:
    clock = TestClock()
    other = await connect(database_url)
    yield [Desk(database, clock), Desk(other, clock)]
    await other.close()


@pytest.fixture
def desk(desks) -> Desk:
    return desks[0]


async def test_an_event_goes_to_those_endpoints_of_its_account_that_want_it(desk):
    first, second = await desk.create(), await desk.create("batch.completed", "response.failed")
    await desk.create("response.failed")
    await desk.create(account=OTHER)
    await desk.happen()
    taken = await desk.queue.take(Places(room=10))
    assert {one.endpoint.endpoint_id for one in taken} == {first.endpoint_id, second.endpoint_id}
    (event,) = {one.event for one in taken}
    assert event.to_wire() == {
        "id": event.event_id,
        "object": "event",
        "created_at": int(desk.clock()),
        "type": "batch.completed",
        "data": {"id": "batch_1"},
    }
    for delivery in taken:
        await desk.queue.note_delivered(delivery)
    assert await desk.num_deliveries() == 0


async def test_an_event_that_is_rolled_back_has_not_happened(desk):
    await desk.create()
    with pytest.raises(RuntimeError):
        async with desk.database.write() as connection:
            await enqueue(connection, ME, "batch.completed", "batch_1", desk.clock())
            raise RuntimeError
    assert await desk.num_deliveries() == 0


async def test_several_processes_take_each_delivery_once(desks):
    endpoints = [await desks[0].create() for _ in range(6)]
    await desks[0].happen()
    taken = await asyncio.gather(*(desk.queue.take(Places(room=2)) for desk in desks for _ in range(3)))
    taken.append(await desks[0].queue.take(Places(room=10)))  # What those left that met others on the way.
    names = sorted(one.endpoint.endpoint_id for some in taken for one in some)
    assert names == sorted(one.endpoint_id for one in endpoints)


async def test_what_a_dead_process_had_taken_is_tried_again_under_the_same_id(desks):
    first, second = desks
    await first.create()
    await first.happen()
    (lost,) = await first.queue.take(Places(room=10))
    assert await second.queue.take(Places(room=10)) == []
    second.clock.advance(LEASE_S)
    (again,) = await second.queue.take(Places(room=10))
    assert (again.event, again.num_tries) == (lost.event, 2)
    await first.queue.note_delivered(lost)  # It was not dead but slow: the delivery is the other's now.
    assert await first.num_deliveries() == 1
    await second.queue.note_delivered(again)
    assert await first.num_deliveries() == 0


async def test_failures_are_tried_later_and_later_for_three_days(desk):
    await desk.create()
    await desk.happen()
    began, delays, is_dropped = desk.clock(), [], False
    while not is_dropped:
        (delivery,) = await desk.queue.take(Places(room=10))
        is_dropped = await desk.queue.note_failed(delivery)
        if not is_dropped:
            async with desk.database.read() as connection:
                due_at = await connection.scalar(select(webhook_deliveries.c.due_at))
            delays.append(due_at - desk.clock())
            desk.clock.advance(due_at - desk.clock())
    assert desk.clock() - began <= RETRIED_S
    assert delays[0] < 6
    assert 270 <= delays[1] <= 330
    assert len(delays) >= 7
    assert all(later > sooner for sooner, later in itertools.pairwise(delays) if later < 60_000)
    assert await desk.num_deliveries() == 0


async def test_one_endpoint_has_few_on_their_way_and_others_are_not_held_up(desk):
    slow = await desk.create("batch.completed")
    for number in range(3 * MAX_PER_ENDPOINT):
        await desk.happen(object_id=f"batch_{number}")
    desk.clock.advance(1)
    other = await desk.create("batch.failed")
    await desk.happen("batch.failed")
    taken = await desk.queue.take(Places(room=100))
    assert {one.endpoint.endpoint_id for one in taken} == {slow.endpoint_id, other.endpoint_id}
    assert await desk.queue.take(Places(room=100), busy=[slow.endpoint_id]) == []
    await desk.happen("batch.failed")
    (one,) = await desk.queue.take(Places(room=100), busy=[slow.endpoint_id])
    assert one.endpoint.endpoint_id == other.endpoint_id


async def test_an_endpoint_that_is_gone_or_fails_for_days_is_disabled_until_it_is_changed(desk):
    gone, failing = await desk.create("batch.completed"), await desk.create("batch.failed")
    await desk.happen()
    (delivery,) = await desk.queue.take(Places(room=10))
    assert await desk.queue.note_failed(delivery, is_gone=True)
    assert (await desk.store.find(ME, gone.endpoint_id)).is_disabled
    await desk.happen()
    assert await desk.num_deliveries() == 0

    await desk.happen("batch.failed")
    (delivery,) = await desk.queue.take(Places(room=10))
    assert not await desk.queue.note_failed(delivery)
    desk.clock.advance(DISABLED_AFTER_S)
    assert not (await desk.store.find(ME, failing.endpoint_id)).is_disabled
    await desk.happen("batch.failed")
    for delivery in await desk.queue.take(Places(room=10)):
        await desk.queue.note_failed(delivery)
    assert (await desk.store.find(ME, failing.endpoint_id)).is_disabled
    assert await desk.num_deliveries() == 0

    assert not (await desk.store.update(ME, failing.endpoint_id)).is_disabled
    await desk.happen("batch.failed")
    assert await desk.num_deliveries() == 1


async def test_an_endpoint_that_is_enabled_again_may_fail_for_days_again(desk):
    endpoint = await desk.create()
    for wait_s in (0, DISABLED_AFTER_S):
        desk.clock.advance(wait_s)
        await desk.happen()
        await desk.queue.note_failed((await desk.queue.take(Places(room=10)))[0])
    assert (await desk.store.update(ME, endpoint.endpoint_id)).is_disabled is False
    for wait_s, is_disabled in ((0, False), (DISABLED_AFTER_S - 1, False), (1, True)):
        desk.clock.advance(wait_s)
        await desk.happen()
        await desk.queue.note_failed((await desk.queue.take(Places(room=10)))[0])
        assert (await desk.store.find(ME, endpoint.endpoint_id)).is_disabled is is_disabled


async def test_changes_of_endpoints_are_in_the_audit_log_without_names_and_addresses(desk):
    by = Actor("api_key", "key_1")
    made = await desk.store.create(ME, "mine", URL, ["batch.completed"], by=by)
    steps = (
        desk.store.update(ME, made.endpoint_id, name="other", url=URL + "2", by=by),
        desk.store.rotate(ME, made.endpoint_id, keeps_previous=False, by=by),
        desk.happen(),
        desk.store.delete(ME, made.endpoint_id, by=by),
    )
    for step in steps:
        desk.clock.advance(1)
        await step
        if await desk.num_deliveries():
            (delivery,) = await desk.queue.take(Places(room=1))
            await desk.queue.note_failed(delivery, is_gone=True)
    log, _ = await AuditLog(desk.database).page(AuditFilter(targets=(made.endpoint_id,)), 10)
    assert [(entry.event.rpartition(".")[2], entry.actor, entry.details) for entry in reversed(log)] == [
        ("created", by, {"event_types": ["batch.completed"]}),
        ("updated", by, {"fields": ["name", "url"]}),
        ("updated", by, {"fields": ["signing_secret"]}),
        ("updated", SERVICE, {"fields": ["is_disabled"]}),
        ("deleted", by, {}),
    ]
    assert {entry.account for entry in log} == {ME}
    assert "receiver.example" not in repr(log)


async def test_a_success_ends_the_days_of_failure(desk):
    endpoint = await desk.create()
    await desk.happen()
    await desk.queue.note_failed((await desk.queue.take(Places(room=10)))[0])
    desk.clock.advance(DISABLED_AFTER_S - 1)
    await desk.queue.note_delivered((await desk.queue.take(Places(room=10)))[0])
    desk.clock.advance(10)
    await desk.happen()
    await desk.queue.note_failed((await desk.queue.take(Places(room=10)))[0])
    assert not (await desk.store.find(ME, endpoint.endpoint_id)).is_disabled


async def test_a_deleted_endpoint_gets_nothing_more(desk):
    endpoint = await desk.create()
    await desk.happen()
    await desk.store.delete(ME, endpoint.endpoint_id)
    assert await desk.num_deliveries() == 0
    row = {"type": "batch.completed", "object_id": "b", "created_at": 0.0, "due_at": 0.0, "num_tries": 0}
    async with desk.database.write() as connection:  # As if the event had happened in the moment of the deletion.
        ids = {"event_id": "evt_1", "endpoint_id": endpoint.endpoint_id}
        await connection.execute(insert(webhook_deliveries).values(row | ids))
    assert await desk.queue.take(Places(room=10)) == []
    assert await desk.num_deliveries() == 0


async def test_a_rotated_secret_signs_for_a_day_if_it_is_kept(desk):
    made = await desk.create()
    rotated = await desk.store.rotate(ME, made.endpoint_id, keeps_previous=True)
    assert rotated.secret != made.secret
    assert rotated.previous == made.secret
    desk.clock.advance(KEPT_SECRET_S)
    assert (await desk.store.find(ME, made.endpoint_id)).previous is None
    again = await desk.store.rotate(ME, made.endpoint_id, keeps_previous=False)
    assert (again.previous, again.secret != rotated.secret) == (None, True)


async def test_endpoints_of_other_accounts_do_not_exist(desk):
    made = await desk.create()
    for attempt in (
        desk.store.find(OTHER, made.endpoint_id),
        desk.store.update(OTHER, made.endpoint_id, name="x"),
        desk.store.rotate(OTHER, made.endpoint_id, keeps_previous=False),
        desk.store.delete(OTHER, made.endpoint_id),
        desk.store.list_endpoints(OTHER, 10, made.endpoint_id),
        desk.store.find(ME, "whe_\0"),
    ):
        with pytest.raises(EndpointMissing):
            await attempt
    assert await desk.store.list_endpoints(OTHER, 10) == ([], False)


async def test_an_account_has_so_many_endpoints_however_it_asks(desks):
    for _ in range(MAX_ENDPOINTS - 1):
        await desks[0].create()
    made = await asyncio.gather(*(desk.create() for desk in desks), return_exceptions=True)
    assert sorted(isinstance(one, TooManyEndpoints) for one in made) == [False, True]


async def test_addresses_and_secrets_are_sealed_and_in_no_repr(desk):
    made = await desk.create()
    async with desk.database.read() as connection:
        row = (await connection.execute(select(webhook_endpoints))).mappings().one()
    for text in (repr(dict(row)), repr(made)):
        assert "not-for-logs" not in text
        assert made.secret not in text


async def test_what_waits_is_counted(desk):
    assert await desk.queue.waiting() == (0, 0.0)
    await desk.create()
    await desk.happen()
    desk.clock.advance(7)
    await desk.happen()
    assert await desk.queue.waiting() == (2, 7.0)
