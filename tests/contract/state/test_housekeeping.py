"""The one janitor: what has expired goes, and a chore that fails or hangs holds no other up."""

import asyncio
import logging
import time
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import func, select

from deployments.state.batches.store import BatchStore
from deployments.state.batches.work import BatchWork
from deployments.state.config import StateConfig
from deployments.state.database.connection import Database
from deployments.state.database.tables.service import metadata
from deployments.state.housekeeping import Chore, Housekeeping, Intervals, create_chores
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.store import ResponseStore
from deployments.state.usage.store import UsageStore
from serve_app.telemetry.log import log_bug
from tests.contract.state.records import record
from tests.contract.state.shelf import Shelf
from tests.contract.state.turns import ME, message, turn
from tests.waiting import eventually

ROWS = ("responses", "response_items", "conversations", "conversation_items")


@asynccontextmanager
async def keep(*chores: Chore):
    running = asyncio.create_task(Housekeeping(chores, log_bug).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def chores_over(shelf: Shelf, **intervals: float) -> list[Chore]:
    work = BatchWork(BatchStore(shelf.database, shelf.store.vault))
    return create_chores(shelf.database, shelf.store, work, StateConfig(), Intervals(**intervals))


async def fill(shelf: Shelf, expires_at: float) -> None:
    vault = shelf.store.vault
    await ResponseStore(shelf.database, vault).save(ME, turn("a"), expires_at=expires_at)
    await ConversationStore(shelf.database, vault).create(ME, {}, [message("m")], expires_at=expires_at)


async def count_rows(database: Database) -> list[int]:
    async with database.read() as connection:
        counts = [select(func.count()).select_from(metadata.tables[name]) for name in ROWS]
        return [await connection.scalar(count) or 0 for count in counts]


async def test_responses_and_conversations_that_have_expired_are_destroyed(database):
    shelf = Shelf(database)
    await fill(shelf, expires_at=1.0)
    for chore in chores_over(shelf):
        await chore.work()
    assert await count_rows(database) == [0, 0, 0, 0]


async def test_nothing_is_destroyed_because_a_clock_has_jumped(database):
    shelf = Shelf(database)
    await fill(shelf, expires_at=shelf.clock.now + 1e6)
    file = await shelf.add()
    before = await count_rows(database)
    shelf.clock.advance(1e9)
    for chore in chores_over(shelf):
        await chore.work()
    assert await count_rows(database) == before
    assert await shelf.content(file) == b"content"


async def test_the_request_log_is_trimmed_again_and_again(database):
    shelf, store = Shelf(database), UsageStore(database)
    shelf.pass_time(time.time() - shelf.clock.now)
    await store.add([record(1), record(2, at=time.time())])
    async with asyncio.timeout(30), keep(*chores_over(shelf, request_log_s=0.02)):
        while await store.count() != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def logged():
    """The lines that chores log. Not by pytest's handlers: beside the tests of the engine, these miss warnings."""
    kept = Lines()
    loggers = [logging.getLogger("deployments.waiting"), logging.getLogger("manta.errors")]
    for logger in loggers:
        logger.addHandler(kept)
    yield kept.lines
    for logger in loggers:
        logger.removeHandler(kept)


@pytest.mark.parametrize("error", [OSError("secret"), ValueError("secret"), None])
async def test_a_chore_that_fails_or_hangs_holds_no_other_up_and_its_message_is_not_logged(error, logged):
    tries, done = [], []

    async def fail() -> None:
        tries.append(1)
        if error is None:
            await asyncio.Event().wait()
        raise error

    async def work() -> None:
        done.append(1)

    async with keep(Chore("Failing", 0.01, fail), Chore("Working", 0.01, work)):
        await eventually(lambda: len(done) > 3 and (error is None or len(tries) > 3))
    text = "\n".join(logged)
    assert (type(error).__name__ in text) == (error is not None)
    assert "secret" not in text


def test_the_log_of_the_database_is_emptied_within_a_minute_whatever_is_configured():
    assert Intervals(expired_s=StateConfig(sweep_interval_s=3600).sweep_interval_s).database_log_s < 60
