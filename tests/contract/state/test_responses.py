"""Stored responses: one suite over SQLite and PostgreSQL."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event, func, select, text

from deployments.state.database.connection import connect
from deployments.state.database.tables.responses import responses
from deployments.state.database.tables.service import metadata
from deployments.state.responses.values import StoredTurn, TurnMissing
from tests.contract.state.turns import DAY, ME, OTHER, begin, ids, message, over, save, stores, turn
from tests.twins.gatekeeper import TestClock

__all__ = ["stores"]

CANARY = "kanarienvogel-93f1"


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
    wrong = stores.responses.save(ME, turn("x"), expires_at=None)
    again = await asyncio.gather(save(stores, "41"), wrong, save(stores, "42"), return_exceptions=True)
    assert [result is None for result in again] == [True, False, True]
    for name in ("1", "40", "41", "42"):
        assert await stores.responses.load(ME, f"resp_{name}") is not None
    assert await stores.responses.load(ME, "resp_x") is None
    waiting = asyncio.create_task(save(stores, "43"))
    await asyncio.sleep(0)
    waiting.cancel()
    await save(stores, "44")
    assert await stores.responses.load(ME, "resp_44") is not None


async def test_a_killed_writer_leaves_nothing_half_done(tmp_path):
    database = await connect(f"sqlite+aiosqlite:///{tmp_path}/manta.db")
    stores = over(database, TestClock())
    await save(stores, "a")
    with pytest.raises(Exception, match="NOT NULL"):
        await stores.responses.save(ME, turn("b"), expires_at=None)
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
    # One that reads the chain, and two that store the turn and where its items are: of PostgreSQL, one.
    assert len(told[2]) == (3 if database.is_sqlite else 2)
    assert sizes[200] - sizes[2] < 20  # Its own items only, and the longer names of the ids.


def other_try(kept: StoredTurn, words: str, created_at: int = 1_700_000_000) -> StoredTurn:
    """Return what another try of a turn's request made: other items under the same id."""
    made = turn("b", words=words)
    return replace(made, response={**made.response, "id": kept.id, "created_at": created_at})


@pytest.mark.parametrize("in_conversation", [False, True])
async def test_of_two_tries_the_first_one_stays(stores, in_conversation):
    until, first = stores.clock() + DAY, turn("a", words="First.")
    made = await stores.conversations.create(ME, {}, [], expires_at=until)
    place = {"expires_at": until, "conversation_id": made.id if in_conversation else None}
    assert await stores.responses.save(ME, first, **place) == first
    tries = [other_try(first, "Second."), turn("c")]
    assert await asyncio.gather(*(stores.responses.save(ME, one, **place) for one in tries)) == [first, tries[1]]
    assert await stores.responses.load(ME, "resp_a") == first
    assert await stores.responses.load(ME, "resp_c") == tries[1]
    assert await stores.responses.find_items(ME, ["msg_b_in", "msg_b_out"]) == {}
    kept = [item["id"] for item in await stores.conversations.all_items(ME, made.id)]
    assert kept == (["msg_a_in", "msg_a_out", "msg_c_in", "msg_c_out"] if in_conversation else [])


@pytest.mark.parametrize("in_conversation", [False, True])
async def test_of_two_streams_the_one_that_began_later_is_stored(stores, in_conversation):
    until, first = stores.clock() + DAY, turn("a", words="First.")
    made = await stores.conversations.create(ME, {}, [], expires_at=until)
    place = {"expires_at": until, "conversation_id": made.id if in_conversation else None, "is_streamed": True}
    await stores.responses.save(ME, first, **place)
    second = replace(other_try(first, "Second.", 1_700_000_004), input=first.input)
    for later in (other_try(first, "Second.", 1_700_000_004), other_try(first, "Early.", 1_700_000_003)):
        assert await stores.responses.save(ME, later, **place) == second
    assert await stores.responses.load(ME, "resp_a") == second
    assert ids(await stores.responses.chain(ME, "resp_a")) == ["msg_a_in", "msg_b_out"]
    wanted = ["msg_a_in", "msg_a_out", "msg_b_in", "msg_b_out"]
    assert [*await stores.responses.find_items(ME, wanted)] == ["msg_a_in", "msg_b_out"]
    kept = [item["id"] for item in await stores.conversations.all_items(ME, made.id)]
    assert kept == (["msg_a_in", "msg_b_out"] if in_conversation else [])
