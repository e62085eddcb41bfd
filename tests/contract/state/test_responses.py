"""Stored responses: one suite over the twin, SQLite and PostgreSQL."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select, text

from deployments.state.account_keys import Vault
from deployments.state.background_responses import BackgroundStore
from deployments.state.clock import PastClock
from deployments.state.conversations import ConversationStore
from deployments.state.database import connect
from deployments.state.gatekeeper import Gatekeeper
from deployments.state.response_protocol import (
    ConversationMissing,
    LeaseLost,
    StoredTurn,
    TurnMissing,
    TurnUnfinished,
)
from deployments.state.responses import ResponseStore
from deployments.state.tables import metadata, responses
from tests.contract.state.processes import resolved
from tests.twins.gatekeeper import TestClock
from tests.twins.responses import MemoryBackground, MemoryConversations, MemoryResponses, MemoryState

ME, OTHER = "acct_1", "acct_2"
DAY = 86_400.0
CANARY = "kanarienvogel-93f1"


@dataclass
class Stores:
    responses: Any
    background: Any
    conversations: Any
    clock: TestClock
    uptime: Any
    database: Any = None


def over(database, clock, uptime=time.monotonic) -> Stores:
    vault = Vault(database, b"m" * 32)
    background = BackgroundStore(database, vault, clock, uptime)
    others = [kind(database, vault, clock) for kind in (ResponseStore, ConversationStore)]
    return Stores(others[0], background, others[1], clock, uptime, database)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def stores(request, tmp_path) -> AsyncIterator[Stores]:
    clock, uptime = TestClock(), TestClock(0.0)
    if request.param == "memory":
        state = MemoryState(clock, uptime)
        yield Stores(MemoryResponses(state), MemoryBackground(state), MemoryConversations(state), clock, uptime)
        return
    url = f"sqlite+aiosqlite:///{tmp_path}/manta.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    database = await connect(url)
    yield over(database, clock, uptime)
    await database.close()


def message(item_id: str, role: str = "user", words: str = "Hi.") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": words}]
    return {"id": item_id, "type": "message", "role": role, "status": "completed", "content": content}


def turn(name: str, previous: str | None = None, status: str = "completed", words: str = "Hi.") -> StoredTurn:
    output = [message(f"msg_{name}_out", "assistant", words)] if status == "completed" else []
    response = {
        "id": f"resp_{name}",
        "created_at": 1_700_000_000,
        "status": status,
        "previous_response_id": previous and f"resp_{previous}",
        "output": output,
        "metadata": {"a": words},
    }
    return StoredTurn(response, [message(f"msg_{name}_in", words=words)], {"fc_1": ["f", "{}", words]}, [1, [2, 3]])


async def save(stores, name, previous=None, account=ME, expires_in=DAY, **more):
    await stores.responses.save(account, turn(name, previous), expires_at=stores.clock() + expires_in, **more)


def ids(past) -> list[str]:
    return [item["id"] for one in past for item in one.items]


async def test_a_response_comes_back_as_it_was(stores):
    kept = turn("a", words="Grüße\0\n")
    await stores.responses.save(ME, kept, expires_at=stores.clock() + DAY)
    assert await stores.responses.load(ME, "resp_a") == kept


@pytest.mark.parametrize("wrong", ["resp_b", "", "resp_a\0", "\ud800", "x" * 200])
async def test_what_is_unknown_is_missing(stores, wrong):
    await save(stores, "a", account=OTHER)
    for response_id in (wrong, "resp_a"):  # Another account's is no different.
        assert await stores.responses.load(ME, response_id) is None
        assert not await stores.responses.delete(ME, response_id)
        assert await stores.background.follow(ME, response_id, -1) is None
        assert not await stores.background.cancel(ME, response_id)
        with pytest.raises(TurnMissing):
            await stores.responses.chain(ME, response_id)


async def test_chain_is_every_turn_oldest_first_and_branches_do_not_mix(stores):
    await save(stores, "a")
    await save(stores, "b", "a")
    await save(stores, "c", "b")
    await save(stores, "d", "b")
    assert ids(await stores.responses.chain(ME, "resp_c")) == [
        f"msg_{name}_{side}" for name in "abc" for side in ("in", "out")
    ]
    assert ids(await stores.responses.chain(ME, "resp_d"))[-2:] == ["msg_d_in", "msg_d_out"]
    assert (await stores.responses.chain(ME, "resp_a"))[0].runs == {"fc_1": ["f", "{}", "Hi."]}


async def test_a_deleted_turn_is_named_by_what_continues_it(stores):
    await save(stores, "a")
    await save(stores, "b", "a")
    assert await stores.responses.delete(ME, "resp_a")
    assert not await stores.responses.delete(ME, "resp_a")
    with pytest.raises(TurnMissing, match="resp_a"):
        await stores.responses.chain(ME, "resp_b")


async def test_expired_turns_stay_while_something_continues_them(stores):
    await save(stores, "a", expires_in=100)
    await save(stores, "b", "a", expires_in=200)
    await save(stores, "c", expires_in=100)
    stores.clock.advance(100)
    assert await stores.responses.load(ME, "resp_a") is None
    with pytest.raises(TurnMissing):
        await stores.responses.chain(ME, "resp_a")
    assert len(await stores.responses.chain(ME, "resp_b")) == 2
    assert await stores.responses.sweep() == 1  # Only c: b was made from a.
    assert len(await stores.responses.chain(ME, "resp_b")) == 2
    stores.clock.advance(100)
    assert await stores.responses.sweep() == 2
    assert await stores.responses.sweep() == 0


async def test_items_are_found_by_their_ids(stores):
    await save(stores, "a")
    await save(stores, "b", account=OTHER)
    made = await stores.conversations.create(ME, {}, [message("msg_talk")], expires_at=stores.clock() + DAY)
    wanted = ["msg_a_in", "msg_a_out", "msg_b_in", "msg_talk", "msg_none", "\0"]
    assert set(await stores.responses.find_items(ME, wanted)) == {"msg_a_in", "msg_a_out", "msg_talk"}
    await stores.responses.delete(ME, "resp_a")
    await stores.conversations.delete(ME, made.id)
    assert await stores.responses.find_items(ME, wanted) == {}


async def test_what_tools_answered_is_found_by_their_items(stores):
    for name, account in (("a", ME), ("b", OTHER)):
        kept = turn(name)
        run = {f"ci_{name}": ["code_interpreter", "{}", "42"]}
        kept.response["output"].append({"id": f"ci_{name}", "type": "code_interpreter_call"})
        kept = StoredTurn(kept.response, kept.input, run, [1, 2])
        await stores.responses.save(account, kept, expires_at=stores.clock() + DAY)
    wanted = ["ci_a", "ci_b", "ci_none", "msg_a_out", "\0"]
    assert await stores.responses.find_runs(ME, wanted) == {"ci_a": ["code_interpreter", "{}", "42"]}
    stores.clock.advance(DAY)
    assert await stores.responses.find_runs(ME, wanted) == {}


async def begin(stores, name="a", job=None):
    return await stores.background.start(
        ME,
        turn(name, status="queued"),
        job or {"raw": "x"},
        events=[b'{"n":0}', b'{"n":1}'],
        expires_at=stores.clock() + DAY,
        lease_s=10,
    )


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
    if stores.database is not None:
        async with stores.database.read() as connection:
            journals = (await connection.execute(select(metadata.tables["response_events"].c.sealed_journal))).scalars()
            assert set(journals) == {None}


async def test_deleting_a_running_response_stops_its_runner(stores):
    epoch = await begin(stores)
    assert await stores.responses.delete(ME, "resp_a")
    with pytest.raises(LeaseLost):
        await stores.background.append(ME, "resp_a", epoch, [b"x"], status="in_progress", lease_s=10)
    assert await stores.background.follow(ME, "resp_a", -1) is None


async def test_a_finished_turn_joins_its_conversation(stores):
    until = stores.clock() + DAY
    made = await stores.conversations.create(ME, {}, [message("msg_0")], expires_at=until)
    await save(stores, "a", conversation_id=made.id)
    epoch = await begin(stores, "b")
    await stores.background.finish(ME, turn("b"), epoch, [], conversation_id=made.id)
    await save(stores, "c", conversation_id="conv_gone")
    items = await stores.conversations.all_items(ME, made.id)
    assert [item["id"] for item in items] == ["msg_0", "msg_a_in", "msg_a_out", "msg_b_in", "msg_b_out"]


async def test_conversations_are_kept_changed_and_destroyed(stores):
    until = stores.clock() + DAY
    made = await stores.conversations.create(ME, {"a": "b"}, [], expires_at=until)
    assert made.metadata == {"a": "b"}
    assert await stores.conversations.load(ME, made.id) == made
    assert await stores.conversations.load(OTHER, made.id) is None
    assert await stores.conversations.update(OTHER, made.id, {}) is None
    assert (await stores.conversations.update(ME, made.id, {"c": "d"})).metadata == {"c": "d"}
    assert (await stores.conversations.load(ME, made.id)).metadata == {"c": "d"}
    assert not await stores.conversations.delete(OTHER, made.id)
    assert await stores.conversations.delete(ME, made.id)
    for call in (
        stores.conversations.all_items(ME, made.id),
        stores.conversations.load_item(ME, made.id, "x"),
        stores.conversations.delete_item(ME, made.id, "x"),
        stores.conversations.add_items(ME, made.id, [message("m")], expires_at=until),
        stores.conversations.list_items(ME, made.id, limit=1, is_ascending=True, after=None),
    ):
        with pytest.raises(ConversationMissing):
            await call


async def test_conversation_items_are_listed_in_pages_both_ways(stores):
    until = stores.clock() + DAY
    made = await stores.conversations.create(ME, {}, [message("msg_0")], expires_at=until)
    added = await stores.conversations.add_items(
        ME, made.id, [message("msg_1"), message("msg_0", words="Again.")], expires_at=until
    )
    assert added[0]["id"] == "msg_1"
    assert added[1]["id"] not in ("msg_0", "msg_1")  # A taken id is replaced.
    names = ["msg_0", "msg_1", added[1]["id"]]

    async def page(limit, is_ascending, after=None):
        found = await stores.conversations.list_items(ME, made.id, limit=limit, is_ascending=is_ascending, after=after)
        return [item["id"] for item in found.items], found.has_more

    assert await page(2, True) == (names[:2], True)
    assert await page(2, True, names[1]) == (names[2:], False)
    assert await page(2, False) == (names[:0:-1], True)
    assert await page(3, False, names[2]) == (names[1::-1], False)
    with pytest.raises(KeyError):
        await page(1, True, "msg_none")
    assert (await stores.conversations.load_item(ME, made.id, names[2]))["content"][0]["text"] == "Again."
    assert await stores.conversations.delete_item(ME, made.id, "msg_1")
    assert not await stores.conversations.delete_item(ME, made.id, "msg_1")
    assert await stores.conversations.load_item(ME, made.id, "msg_1") is None


async def test_conversations_expire_after_their_last_use(stores):
    made = await stores.conversations.create(ME, {}, [message("m")], expires_at=stores.clock() + 100)
    stores.clock.advance(60)
    await stores.conversations.add_items(ME, made.id, [message("n")], expires_at=stores.clock() + 100)
    stores.clock.advance(60)
    assert await stores.conversations.sweep() == 0
    assert await stores.conversations.load(ME, made.id)
    stores.clock.advance(60)
    assert await stores.conversations.load(ME, made.id) is None
    assert await stores.conversations.sweep() == 1


async def test_nothing_is_left_in_any_table_once_all_is_gone(database):
    clock = TestClock()
    stores = over(database, clock)
    until = clock() + DAY
    made = await stores.conversations.create(ME, {"k": CANARY}, [message("m", words=CANARY)], expires_at=until)
    for name, previous in (("a", None), ("b", "a")):
        one = turn(name, previous, words=CANARY)
        await stores.responses.save(ME, one, expires_at=until, conversation_id=made.id)
    await begin(stores, "c", job={"raw": CANARY})
    canary = [CANARY.encode()]
    await stores.background.append(ME, "resp_c", 1, canary, journal=canary, status="in_progress", lease_s=10)
    tables = [table for table in metadata.sorted_tables if table.name.startswith(("response", "conversation"))]
    async with database.read() as connection:
        for table in tables:
            rows = (await connection.execute(select(table))).all()
            assert rows
            assert CANARY not in str(rows)
    clock.advance(2 * DAY)
    assert await stores.responses.sweep() == 3
    assert await stores.conversations.sweep() == 1
    async with database.read() as connection:
        for table in tables:
            assert await connection.scalar(select(func.count()).select_from(table)) == 0


async def test_deleted_content_is_gone_from_the_file_itself(tmp_path):
    path = tmp_path / "manta.db"
    database = await connect(f"sqlite+aiosqlite:///{path}")
    stores = over(database, TestClock())
    one = turn("a", words=CANARY)
    await stores.responses.save(ME, one, expires_at=stores.clock() + DAY)
    async with database.read() as connection:
        (row,) = (await connection.execute(select(metadata.tables["responses"]))).all()
    assert await stores.responses.delete(ME, "resp_a")
    async with database.engine.connect() as connection:
        await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    await database.close()
    left = path.read_bytes()
    assert row.wrapped_key not in left
    assert row.sealed_items not in left


async def test_the_gatekeeper_sweeps_what_has_expired(database, database_url, tmp_path):
    state = resolved(database_url, tmp_path / "state")
    vault = Vault(database, state.master_key)
    await ResponseStore(database, vault).save(ME, turn("a"), expires_at=1.0)
    await ConversationStore(database, vault).create(ME, {}, [message("m")], expires_at=1.0)
    gatekeeper = Gatekeeper(state)
    try:
        await asyncio.to_thread(gatekeeper._background.run, gatekeeper._sweep_responses())
    finally:
        gatekeeper.stop()
    async with database.read() as connection:
        for name in ("responses", "response_items", "conversations", "conversation_items"):
            assert await connection.scalar(select(func.count()).select_from(metadata.tables[name])) == 0


async def test_the_gatekeeper_sweeps_nothing_because_a_clock_has_jumped(database, database_url, tmp_path):
    state, wall = resolved(database_url, tmp_path / "state"), TestClock()
    vault = Vault(database, state.master_key)
    await ResponseStore(database, vault).save(ME, turn("a"), expires_at=wall.now + 1e6)
    await ConversationStore(database, vault).create(ME, {}, [message("m")], expires_at=wall.now + 1e6)
    gatekeeper = Gatekeeper(state)
    gatekeeper._past = PastClock(wall, TestClock(0.0))
    wall.advance(1e9)
    try:
        await asyncio.to_thread(gatekeeper._background.run, gatekeeper._sweep_responses())
    finally:
        gatekeeper.stop()
    async with database.read() as connection:
        for name in ("responses", "conversations"):
            assert await connection.scalar(select(func.count()).select_from(metadata.tables[name])) == 1


async def test_many_at_once_are_saved_together_and_one_that_fails_fails_alone(database, monkeypatch):
    stores = over(database, TestClock())
    await save(stores, "0")
    begun = []
    write = database.write_at_once

    def count(work):
        begun.append(1)
        return write(work)

    monkeypatch.setattr(database, "write_at_once", count)
    results = await asyncio.gather(*(save(stores, str(n), "0") for n in range(1, 41)))
    assert results == [None] * 40
    assert len(begun) <= 3
    again = await asyncio.gather(
        *(save(stores, name) for name in ("41", "40", "42")),
        return_exceptions=True,  # The second is there already.
    )
    assert [result is None for result in again] == [True, False, True]
    for name in ("1", "40", "41", "42"):
        assert await stores.responses.load(ME, f"resp_{name}") is not None
    waiting = asyncio.create_task(save(stores, "43"))
    await asyncio.sleep(0)
    waiting.cancel()
    await save(stores, "44")
    assert await stores.responses.load(ME, "resp_44") is not None


async def test_a_killed_writer_leaves_nothing_half_done(tmp_path):
    database = await connect(f"sqlite+aiosqlite:///{tmp_path}/manta.db")
    stores = over(database, TestClock())
    await save(stores, "a")
    with pytest.raises(Exception, match="UNIQUE"):
        await save(stores, "a")
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM response_items")) == 2
    await database.close()


@contextmanager
def statements() -> Iterator[list[str]]:
    """Gather the statements that are run meanwhile, whatever carries them to the database."""
    told: list[str] = []

    def note(connection, cursor, statement, parameters, context, executemany):
        if not statement.startswith("BEGIN"):
            told.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield told
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def test_a_chain_of_200_turns_is_continued_with_as_many_statements_as_one_of_2(database):
    stores = over(database, TestClock())
    names = [str(number) for number in range(200)]
    for previous, name in zip([None, *names], names, strict=False):
        await save(stores, name, previous)
    told, sizes = {}, {}
    for length in (2, 200):
        with statements() as told[length]:
            assert len(await stores.responses.chain(ME, f"resp_{length - 1}")) == length
            await save(stores, f"after {length}", str(length - 1))
        query = select(func.length(responses.c.sealed_items) + func.length(responses.c.sealed_response))
        async with database.read() as connection:
            where = responses.c.response_id == f"resp_after {length}"
            sizes[length] = await connection.scalar(query.where(where))
    assert told[200] == told[2]
    assert len(told[2]) == 3  # One that reads the chain, and two that store the turn and where its items are.
    assert sizes[200] - sizes[2] < 20  # Its own items only, and the longer names of the ids.
