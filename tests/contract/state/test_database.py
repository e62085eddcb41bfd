import asyncio
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from asyncpg import InterfaceError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from deployments.config import ConfigError
from deployments.state.database import connection as database_module
from deployments.state.database.connection import Database, connect
from deployments.state.database.migrations import head_revision
from deployments.state.database.sqlite import create_sqlite, migration_lock
from deployments.state.database.tables.service import metadata
from tests.contract.state.postgres import PostgresServer, create_tables_together
from tests.forks import FORKS, import_first
from tests.patience import SOON

import_first(create_tables_together.__module__)

MIGRATIONS = Path(database_module.__file__).parent / "migrations"


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    """The URL of an empty database, of each kind in turn: here the migrations run."""
    return empty_database_url


async def differences(database: Database) -> list:
    """Return how the tables of a database differ from those that the code declares."""

    def compare(connection):
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, metadata)

    async with database.read() as connection:
        return await connection.run_sync(compare)


def test_the_head_is_what_alembic_takes_for_it() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == head_revision()


async def test_opening_again_changes_nothing(database_url: str) -> None:
    for _ in range(2):
        database = await connect(database_url)
        await count_up(database)
        await database.close()
    database = await connect(database_url)
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT value FROM revisions")) == 2
    await database.close()


def test_several_processes_may_start_at_once(database_url: str) -> None:
    barrier = FORKS.Barrier(6)
    processes = [FORKS.Process(target=create_tables_together, args=(database_url, barrier)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 6


def test_many_that_create_a_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    def create(number: int) -> None:
        barrier.wait(30)
        create_sqlite(tmp_path / f"{number // 6}.db")

    barrier = threading.Barrier(6)
    with ThreadPoolExecutor(6) as threads:
        for _ in threads.map(create, range(300)):
            pass
        held = tmp_path / "50.db"
        with migration_lock(held):
            creating = threads.submit(create_sqlite, held)
            with pytest.raises(TimeoutError):
                creating.result(0.2)
            assert not held.exists()
        creating.result(30)
    for number in range(51):
        path = tmp_path / f"{number}.db"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_process_that_opens_a_file_again_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "manta.db"
    url = f"sqlite+aiosqlite:///{path}"
    first = await connect(url)
    await count_up(first)
    await (await connect(url)).close()
    assert await value_elsewhere(path) == 1  # The other process does not take itself for the last, and leaves the log.
    await count_up(first)
    assert await value_elsewhere(path) == 2
    await first.close()


async def count_up(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(text("UPDATE revisions SET value = value + 1"))


async def value_elsewhere(path: Path) -> int:
    """Return the value that another process reads, which opens the file and closes it."""
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "print(*connection.execute('SELECT value FROM revisions').fetchone())\n"
        "connection.close()\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    return int(await asyncio.to_thread(subprocess.check_output, command))


async def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    database = await connect(database_url)
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'v9999_later'"))
    await database.close()
    with pytest.raises(ConfigError, match=r"v9999_later.*newer version"):
        await connect(database_url)


async def test_a_failed_write_leaves_nothing(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        async with database.write() as connection:
            await connection.execute(text("UPDATE revisions SET value = 77"))
            raise ZeroDivisionError
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT value FROM revisions")) == 0


async def test_writers_of_sqlite_wait_for_each_other(tmp_path: Path) -> None:
    database = await connect(f"sqlite+aiosqlite:///{tmp_path / 'manta.db'}")

    async def count() -> None:
        async with database.write() as connection:
            value = await connection.scalar(text("SELECT value FROM revisions"))
            await asyncio.sleep(0.002)
            await connection.execute(text("UPDATE revisions SET value = :value"), {"value": value + 1})

    await asyncio.gather(*(count() for _ in range(20)))
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT value FROM revisions")) == 20
    await database.close()


async def test_transaction_that_runs_when_the_database_is_closed_ends_first(empty_database_url: str) -> None:
    database = await connect(empty_database_url)
    async with database.write() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0.05)
        assert await connection.scalar(text("SELECT 1")) == 1
        assert not closing.done()
    await closing
    with pytest.raises((ValueError, InterfaceError), match=r"closed|no active connection"):
        await driver.execute("SELECT 1")


async def test_sqlite_is_durable_and_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "manta.db"
    database = await connect(f"sqlite+aiosqlite:///{path}")
    async with database.write() as connection:
        pragmas = [await connection.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous")]
        await connection.execute(text("UPDATE revisions SET value = 1"))
    assert pragmas == ["wal", 2]
    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("manta.db*")}
    assert modes == {0o600}
    await database.close()


@pytest.mark.parametrize(
    "url", ["sqlite+aiosqlite:////proc/none/manta.db", "postgresql+asyncpg://who:hidden@127.0.0.1:1/x"]
)
async def test_a_database_that_cannot_be_used_says_so_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        await connect(url)
    assert "hidden" not in str(refused.value)
    assert "database" in str(refused.value).lower()


async def test_the_log_is_emptied_once_nobody_reads_from_it(tmp_path: Path) -> None:
    database = await connect(f"sqlite+aiosqlite:///{tmp_path}/manta.db")
    log = tmp_path / "manta.db-wal"
    increase = text("UPDATE revisions SET value = value + 1")
    async with database.read() as reading:
        (await reading.execute(text("SELECT value FROM revisions"))).all()
        async with database.write() as connection:
            await connection.execute(increase)
        await database.empty_log()
        assert log.stat().st_size > 0
        async with database.write() as connection:
            await connection.execute(increase)
    await database.empty_log()
    assert log.stat().st_size == 0
    await database.close()


async def test_a_task_that_is_cancelled_in_a_transaction_leaves_no_lock_and_nothing_half_done(
    database: Database,
) -> None:
    async def write() -> None:
        async with database.write() as connection:
            await connection.execute(text("UPDATE revisions SET value = value + 1"))
            (await connection.execute(text("SELECT * FROM revisions, alembic_version"))).all()
            await connection.execute(text("UPDATE revisions SET value = value + 1"))

    async def num_written() -> float:
        async with database.read() as connection:
            return int(await connection.scalar(text("SELECT value FROM revisions")) or 0) / 2

    before = 0.0
    kept: list[object] = []  # What a task failed with holds its frames, as the logs of a service may.
    for number in range(60):
        tasks = [asyncio.create_task(write()) for _ in range(2)]
        await asyncio.sleep(0.0002 * (number % 20))
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        kept += outcomes
        assert all(one is None or isinstance(one, asyncio.CancelledError) for one in outcomes), outcomes
        async with asyncio.timeout(30):
            await write()
        written = await num_written()
        # A task that was cancelled while it committed may have written, but not a half.
        assert written - before in range(1 + outcomes.count(None), 4)
        before = written


async def test_a_server_that_does_not_answer_holds_nobody_for_ever(
    mortal_postgres: PostgresServer,
) -> None:
    database = await connect(mortal_postgres.create_database(), SOON)

    async def ask() -> object:
        async with database.write() as connection:
            return await connection.scalar(text("SELECT value FROM revisions"))

    assert await ask() == 0
    mortal_postgres.pause()
    async with asyncio.timeout(60):
        failures = await asyncio.gather(*(ask() for _ in range(12)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {OperationalError}
    mortal_postgres.resume()
    assert await ask() == 0
    mortal_postgres.kill()
    for _ in range(2):
        with pytest.raises(DBAPIError):
            await ask()
    mortal_postgres.start()
    assert await ask() == 0
    await database.close()
