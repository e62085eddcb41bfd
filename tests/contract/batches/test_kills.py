"""Processes that are killed or paused while they run a batch: another goes on, and each line has one outcome."""

import os
import signal
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from sqlalchemy import text

from serve_app.operations.responses.storage import storage_in
from tests.contract.batches.process import AMID_A_COMMIT, POINTS, RESPONSE_POINTS, SLOWLY, STOPS, open_all
from tests.contract.batches.runs import NUM_LINES, Runs
from tests.contract.http.answers import MODEL
from tests.databases import more_on_postgresql


@pytest.fixture
async def runs(database_url: str, tmp_path: Path) -> AsyncIterator[Runs]:
    objects_url = (tmp_path / "objects").as_uri()
    runs = Runs(database_url, objects_url, await open_all(database_url, objects_url))
    yield runs
    await runs.close()


def mostly_exhaustive(points: Iterable[str], *kept: str) -> list[ParameterSet]:
    """Leave only the kept points to `make test`: another test goes through all of them, one after the other."""
    return [pytest.param(one, marks=() if one in kept else pytest.mark.exhaustive) for one in points]


@more_on_postgresql
@pytest.mark.parametrize(
    "point",
    mostly_exhaustive(POINTS, "after a segment was sealed", "after a commit", "after the output was written"),
)
async def test_a_batch_survives_a_kill(runs: Runs, point: str) -> None:
    batch_id = await runs.submit()
    assert await runs.start(point).ended() == -signal.SIGKILL
    taken = await runs.steps(batch_id)
    await runs.release(batch_id)
    assert await runs.start().ended() == 0
    await runs.check(batch_id)
    assert taken.items() <= (await runs.steps(batch_id)).items()  # No step was taken back, or taken again.


async def test_a_batch_survives_kills_at_every_point_one_after_the_other(runs: Runs) -> None:
    batch_id = await runs.submit()
    points = list(POINTS)
    for point in points[:-1]:
        assert await runs.start(point).ended() == -signal.SIGKILL
        await runs.release(batch_id)
    assert await runs.start().ended() == 0
    await runs.check(batch_id)


async def test_a_batch_of_a_killed_process_goes_on_once_its_claim_has_run_out(runs: Runs) -> None:
    batch_id = await runs.submit()
    assert await runs.start("before a commit").ended() == -signal.SIGKILL
    assert await runs.start().ended() == 0
    await runs.check(batch_id)


@more_on_postgresql
@pytest.mark.parametrize("point", STOPS)
async def test_a_process_that_was_paused_past_its_claim_does_no_harm(runs: Runs, point: str) -> None:
    batch_id = await runs.submit()
    paused = runs.start(point)
    await paused.stopped()
    await runs.release(batch_id)  # As if it had run out.
    other = runs.start(SLOWLY)
    await runs.until_claimed(batch_id, 2)
    os.kill(paused.pid, signal.SIGCONT)
    assert await paused.ended() == 0
    assert await other.ended() == 0
    await runs.check(batch_id)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("point", mostly_exhaustive([*STOPS, AMID_A_COMMIT], "stopped before a commit", AMID_A_COMMIT))
async def test_a_region_that_was_paused_commits_nothing_once_another_has_taken_over(runs: Runs, point: str) -> None:
    async with runs.stores.database.write() as connection:
        for statement in _NOTE_EPOCHS:
            await connection.execute(text(statement))

    async def epochs() -> list[int]:
        async with runs.stores.database.read() as connection:
            return list((await connection.execute(text("SELECT epoch FROM noted ORDER BY number"))).scalars())

    batch_id = await runs.submit()
    paused = runs.start(point, "us")
    await paused.stopped()
    if point != AMID_A_COMMIT:  # Which has locked the batch's row.
        await runs.release(batch_id)
    other = runs.start(SLOWLY, "asia")
    await runs.until_claimed(batch_id, 2)
    num_before = (await epochs()).count(1)
    assert num_before > 0
    os.kill(paused.pid, signal.SIGCONT)
    assert await paused.ended() == 0
    assert await other.ended() == 0
    await runs.check(batch_id)
    assert (await epochs()).count(1) == num_before


_NOTE_EPOCHS = (
    "CREATE TABLE noted (number serial, epoch bigint)",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN INSERT INTO noted (epoch) VALUES (NEW.epoch); RETURN NULL; END'",
    "CREATE TRIGGER note_segment AFTER INSERT ON batch_segments FOR EACH ROW EXECUTE FUNCTION note()",
)
"""Has PostgreSQL note under which claim each outcome of a batch was committed."""


@more_on_postgresql
@pytest.mark.parametrize("point", RESPONSE_POINTS)
async def test_a_response_that_was_stored_before_a_kill_is_stored_and_answered_once(runs: Runs, point: str) -> None:
    storage = storage_in(runs.stores.database, runs.stores.files)
    talk = (await storage.conversations.create("acct", {}, [], expires_at=time.time() + 3600)).id
    asks = [{"model": MODEL, "input": f"Question {number}"} for number in range(NUM_LINES)]
    asks[0]["conversation"] = talk
    batch_id = await runs.submit_lines("/v1/responses", asks)
    assert await runs.start(point).ended() == -signal.SIGKILL
    before, _ = await storage.responses.list_turns("acct", NUM_LINES)
    assert before

    await runs.release(batch_id)
    assert await runs.start().ended() == 0
    await runs.check(batch_id)
    stored, has_more = await storage.responses.list_turns("acct", NUM_LINES)
    assert not has_more
    told = {answer["response"]["body"]["id"]: answer["response"]["body"] for answer in await runs.answers(batch_id)}
    assert told == {turn.id: turn.response for turn in stored}
    assert all(turn in stored for turn in before)
    assert len(await storage.conversations.all_items("acct", talk)) == 2


async def test_many_processes_share_the_batches(runs: Runs) -> None:
    batch_id = await runs.submit()
    processes = [runs.start() for _ in range(3)]
    assert [await process.ended() for process in processes] == [0, 0, 0]
    await runs.check(batch_id)
