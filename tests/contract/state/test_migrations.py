"""A database that the version of 2026-11-27 made is taken over, with what waits in it; and what a migration may do."""

import ast
import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from deployments.config import ConfigError
from deployments.state.database import migrations
from deployments.state.database.connection import connect
from deployments.state.database.migrations import head_revision
from deployments.state.database.queues import ONE
from tests.contract.state import test_database, test_vector_stores, test_webhooks, turns
from tests.twins.gatekeeper import TestClock

MADE = Path(__file__).parent / "made_before"
VERSIONS = Path(migrations.__file__).parent / "versions"
ADDING = {"create_table", "create_index", "add_column", "execute"}
REMOVING = {"drop_table", "drop_index", "drop_column"}


async def load(url: str) -> None:
    """Make the tables and rows that the other version left: a key's file in a store, a response, an event."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(parsed.database or "")) as connection:
            connection.executescript((MADE / "sqlite.sql").read_text())
        return
    opened = await asyncpg.connect(host=parsed.host, port=parsed.port, user=parsed.username, database=parsed.database)
    await opened.execute((MADE / "postgresql.sql").read_text())
    await opened.close()


async def test_a_database_of_the_version_before_is_taken_over_with_all_that_waits(empty_database_url: str) -> None:
    await load(empty_database_url)
    database = await connect(empty_database_url)
    assert await test_database.differences(database) == []
    clock = TestClock()
    indexed = await test_vector_stores.Stores(database).work.claim(60, 10)
    assert indexed is not None
    assert [claimed.file.file_id for claimed in indexed.files] == ["file-1", "file-2"]
    (delivery,) = await test_webhooks.Desk(database, clock).queue.take(ONE)
    assert (delivery.event.type, delivery.event.object_id) == ("batch.completed", "batch_1")
    clock.advance(3600)
    response = await turns.over(database, clock).background.claim(10)
    assert response is not None
    assert (response.account, response.job) == (turns.ME, {"raw": "x"})
    await database.close()


async def test_processes_that_take_it_over_at_once_wait_for_each_other(empty_database_url: str) -> None:
    await load(empty_database_url)
    await asyncio.to_thread(test_database.test_several_processes_may_start_at_once, empty_database_url)
    database = await connect(empty_database_url)
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == head_revision()
    await database.close()


async def test_a_database_that_is_too_old_is_refused_with_the_way_on(empty_database_url: str) -> None:
    database = await connect(empty_database_url)
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'v0020_paused_batches'"))
    await database.close()
    with pytest.raises(ConfigError, match=r"v0020_paused_batches.*version of 2026-11-27 once"):
        await connect(empty_database_url)


@pytest.mark.parametrize("path", sorted(VERSIONS.glob("v*.py")), ids=lambda path: path.stem)
def test_a_migration_removes_only_what_the_version_before_did_not_use(path: Path) -> None:
    """Two versions may run on one database for a while, and one may be put back: a step adds, the next one removes."""
    tree = ast.parse(path.read_text())
    unused = next((ast.literal_eval(one.value) for one in tree.body
                   if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "UNUSED"), ())  # fmt: skip
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if not name.startswith("op."):
            continue
        name = name.removeprefix("op.")
        if name in REMOVING:
            removed = ast.literal_eval(call.args[1 if name == "drop_column" else 0])
            assert removed in unused
        else:
            assert name in ADDING
        if name == "add_column":
            column = ast.unparse(call.args[1])
            assert "nullable=False" not in column or "server_default" in column, column
