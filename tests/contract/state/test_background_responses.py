"""Background responses in their stores, over SQLite and PostgreSQL: events, cancellation, leases."""

import pytest
from sqlalchemy import select

from deployments.state.database.tables.service import metadata
from deployments.state.responses.values import LeaseLost, TurnUnfinished
from tests.contract.state.turns import ME, OTHER, begin, ids, stores, turn

__all__ = ["stores"]


async def test_background_events_are_followed_from_any_number(stores):
    epoch = await begin(stores)
    assert (await stores.responses.load(ME, "resp_a")).response["output"] == []
    with pytest.raises(TurnUnfinished):
        await stores.responses.chain(ME, "resp_a")
    add = [b'{"n":%d}' % n for n in range(2, 5)]
    assert (await stores.responses.load(ME, "resp_a")).response["status"] == "queued"
    assert not await stores.background.append(ME, "resp_a", epoch, add, status="in_progress", lease_s=10)
    assert (await stores.responses.load(ME, "resp_a")).response["status"] == "in_progress"
    followed = await stores.background.follow(ME, "resp_a", -1)
    assert followed.events == [b'{"n":%d}' % n for n in range(5)]
    assert followed.is_running
    assert (await stores.background.follow(ME, "resp_a", 2)).events == [b'{"n":3}', b'{"n":4}']
    await stores.background.finish(ME, turn("a"), epoch, [b'{"n":5}'])
    followed = await stores.background.follow(ME, "resp_a", 3)
    assert followed.events == [b'{"n":4}', b'{"n":5}']
    assert not followed.is_running
    assert (await stores.background.follow(ME, "resp_a", 5)).events == []
    assert await stores.responses.load(ME, "resp_a") == turn("a")
    assert ids(await stores.responses.chain(ME, "resp_a")) == ["msg_a_in", "msg_a_out"]
    assert await stores.background.claim(10) is None


async def test_response_is_stored_once_however_often_it_begins(stores):
    epoch = await begin(stores)
    assert await begin(stores, job={"raw": "again"}) is None
    add = [b'{"n":2}']
    assert not await stores.background.append(ME, "resp_a", epoch, add, status="in_progress", lease_s=10)
    assert await begin(stores) is None
    assert (await stores.responses.load(ME, "resp_a")).response["status"] == "in_progress"
    stores.clock.advance(10)
    claimed = await stores.background.claim(10)
    assert (claimed.job, len(claimed.events)) == ({"raw": "x"}, 3)


async def test_cancel_reaches_whoever_runs(stores):
    epoch = await begin(stores)
    assert await stores.background.cancel(ME, "resp_a")
    assert not await stores.background.cancel(OTHER, "resp_a")
    assert await stores.background.append(ME, "resp_a", epoch, [], status="in_progress", lease_s=10)
    await stores.background.finish(ME, turn("a", status="cancelled"), epoch, [])
    assert not await stores.background.cancel(ME, "resp_a")


async def test_a_lapsed_lease_is_claimed_once_and_the_old_runner_shut_out(stores):
    epoch = await begin(stores, job={"raw": "body"})
    await stores.background.append(ME, "resp_a", epoch, [b'{"n":2}'], status="in_progress", lease_s=10)
    assert await stores.background.claim(10) is None
    stores.clock.advance(10)
    claimed = await stores.background.claim(10)
    assert (claimed.account, claimed.job, claimed.epoch) == (ME, {"raw": "body"}, epoch + 1)
    assert claimed.turn.input == turn("a").input
    assert claimed.events == [b'{"n":%d}' % n for n in range(3)]
    assert await stores.background.claim(10) is None
    with pytest.raises(LeaseLost):
        await stores.background.append(ME, "resp_a", epoch, [b"x"], status="in_progress", lease_s=10)
    with pytest.raises(LeaseLost):
        await stores.background.finish(ME, turn("a"), epoch, [b"x"])
    await stores.background.finish(ME, turn("a"), claimed.epoch, [b"z"])
    assert (await stores.background.follow(ME, "resp_a", -1)).events == [*claimed.events, b"z"]


async def test_a_lease_taken_by_a_clock_that_was_ahead_ends_with_its_holder(stores):
    stores.clock.advance(3600)
    epoch = await begin(stores)
    stores.clock.advance(-3600)
    assert await stores.background.claim(10) is None
    stores.uptime.advance(9)
    stores.clock.advance(3600 + 9)
    await stores.background.append(ME, "resp_a", epoch, [], status="in_progress", lease_s=10)
    stores.clock.advance(-3600)
    assert await stores.background.claim(10) is None
    stores.uptime.advance(9)
    assert await stores.background.claim(10) is None
    stores.uptime.advance(1)
    claimed = await stores.background.claim(10)
    assert claimed.epoch == epoch + 1
    with pytest.raises(LeaseLost):
        await stores.background.append(ME, "resp_a", epoch, [b"x"], status="in_progress", lease_s=10)
    assert await stores.background.claim(10) is None


async def test_whoever_takes_over_gets_the_journal_and_nobody_after_the_end(stores):
    epoch = await begin(stores)
    for n in range(2, 5):
        entries = [b'{"kind":"%d"}' % n] * (n - 2)
        events = [b'{"n":%d}' % n]
        await stores.background.append(ME, "resp_a", epoch, events, journal=entries, status="in_progress", lease_s=10)
    await stores.background.release("resp_a", epoch)
    claimed = await stores.background.claim(10)
    assert claimed.journal == [b'{"kind":"3"}', b'{"kind":"4"}', b'{"kind":"4"}']
    assert claimed.events == [b'{"n":%d}' % n for n in range(5)]
    await stores.background.finish(ME, turn("a"), claimed.epoch, [b'{"n":5}'])
    assert len((await stores.background.follow(ME, "resp_a", -1)).events) == 6
    async with stores.database.read() as connection:
        journals = (await connection.execute(select(metadata.tables["response_events"].c.sealed_journal))).scalars()
        assert set(journals) == {None}


async def test_deleting_a_running_response_stops_its_runner(stores):
    epoch = await begin(stores)
    assert await stores.responses.delete(ME, "resp_a")
    with pytest.raises(LeaseLost):
        await stores.background.append(ME, "resp_a", epoch, [b"x"], status="in_progress", lease_s=10)
    assert await stores.background.follow(ME, "resp_a", -1) is None
