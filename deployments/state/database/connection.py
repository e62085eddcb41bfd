"""The metadata database: one engine per process, transactions, and the tables brought up to date on start.

SQLite keeps one writer at a time, so a transaction that writes takes the write lock at its first statement and waits
its turn there, instead of failing half-way when two readers want to write.
"""

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Executable, Insert, NullPool, Table, create_engine, event, inspect, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util.concurrency import in_greenlet

from deployments.config import ConfigError

T = TypeVar("T")

_MIGRATIONS = Path(__file__).parent / "migrations"
_PRAGMAS = (
    "busy_timeout=10000",
    "synchronous=FULL",
    "foreign_keys=ON",
    "secure_delete=ON",  # What is deleted is overwritten: wrapped keys are deleted to destroy what they open.
)
# A server that has stopped without a word holds nobody longer than this: to be connected, to have a statement answered,
# to have a connection of the pool. Statements of the service take milliseconds; SQLite waits as long for its lock.
_CONNECT_TIMEOUT_S = 5.0
_COMMAND_TIMEOUT_S = 10.0
_POOL_TIMEOUT_S = 10.0
_READERS = 4
_LOG_BUSY_MS = 200
_MIGRATION_LOCK = 0x6D616E7461  # "manta": the advisory lock that one migrating process holds on PostgreSQL.


class Database:
    """An open database; `connect` makes one. `is_sqlite` tells statements apart where the two differ."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._writing = engine.execution_options(manta_write=True)
        self._writer = _SqliteThreads(engine, 1, is_writing=True) if self.is_sqlite else None
        self._reader = _SqliteThreads(engine, _READERS) if self.is_sqlite else None

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that only reads.

        Raises:
            DBAPIError: the database cannot be reached or fails.
        """
        with _one_kind_of_failure():
            async with self.engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that writes; it is committed when the block ends without an error.

        Raises:
            DBAPIError: the database cannot be reached or fails; whether a commit took effect is then not known.
        """
        with _one_kind_of_failure():
            async with self._writing.begin() as connection:
                yield connection

    async def read_at_once(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns of a transaction that only reads: for what requests wait for.

        Raises:
            DBAPIError: the database cannot be reached or fails.
        """
        if self._reader is not None:
            return await self._reader.run(work)
        async with self.read() as connection:
            return await connection.run_sync(work)

    async def write_at_once(self, work: Callable[[Connection], None]) -> None:
        """Have `work` done in a transaction that writes, without a way back into the event loop in between."""
        if self._writer is not None:
            await self._writer.run(work)
            return
        async with self.write() as connection:
            await connection.run_sync(work)

    async def empty_log(self) -> None:
        """Have SQLite write its log into the database and empty it: until then it still holds what was deleted.

        Where somebody reads for long, it stays for the next time. PostgreSQL looks after its own.

        Raises:
            DBAPIError: the database fails.
        """
        if not self.is_sqlite:
            return
        with _one_kind_of_failure():
            async with self.engine.connect() as connection:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                await driver.execute_fetchall(f"PRAGMA busy_timeout={_LOG_BUSY_MS}")  # Nobody can write meanwhile.
                try:
                    await driver.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
                finally:
                    await driver.execute_fetchall(f"PRAGMA {_PRAGMAS[0]}")

    def upsert(self, table: Table, key: list[str], adding: Collection[str] = ()) -> Executable:
        """Return an INSERT that, where a row with this key exists, replaces its other columns or adds to `adding`."""
        statement = sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)
        values = {
            column.name: column + statement.excluded[column.name]
            if column.name in adding
            else statement.excluded[column.name]
            for column in table.c
            if column.name not in key
        }
        return statement.on_conflict_do_update(index_elements=key, set_=values)

    def insert_or_ignore(self, table: Table) -> Insert:
        """Return an INSERT that leaves a row with the same key as it is."""
        statement = sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)
        return statement.on_conflict_do_nothing()

    async def close(self) -> None:
        """Close every connection."""
        for threads in (self._writer, self._reader):
            if threads is not None:
                await asyncio.to_thread(threads.close)
        await self.engine.dispose()


async def connect(url: str) -> Database:
    """Open the database and bring its tables up to date.

    Raises:
        ConfigError: the database cannot be reached, or was written by a newer version.
    """
    parsed = make_url(url)
    try:
        if parsed.drivername.startswith("sqlite"):
            path = Path(parsed.database or "")
            path.parent.mkdir(parents=True, exist_ok=True)
            logging.getLogger("aiosqlite").setLevel(logging.INFO)  # At DEBUG it writes down what is stored.
            engine = create_async_engine(url, connect_args={"isolation_level": None})
            _configure_sqlite(engine.sync_engine)
            await asyncio.to_thread(_create_sqlite, path)
        else:
            engine = create_async_engine(
                url,
                pool_size=4,
                max_overflow=4,
                pool_pre_ping=True,
                pool_timeout=_POOL_TIMEOUT_S,
                connect_args={"timeout": _CONNECT_TIMEOUT_S, "command_timeout": _COMMAND_TIMEOUT_S},
            )
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise ConfigError(f"The database cannot be opened: {_reason(error)}.") from None
    database = Database(engine)
    try:
        await _migrate(database, parsed)
    except (DBAPIError, OSError) as error:
        await database.close()
        place = parsed.render_as_string(hide_password=True)
        raise ConfigError(f"The database {place} cannot be used: {_reason(error)}.") from error
    except BaseException:
        await database.close()
        raise
    return database


def may_pass(error: Exception) -> bool:
    """Say whether what failed with this may do later: the database is away, and nothing is wrong with what it got."""
    return isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | DataError | ProgrammingError)


def head_revision() -> str:
    """Return the name of the newest migration."""
    return sorted(path.stem for path in (_MIGRATIONS / "versions").glob("v*.py"))[-1]


class _SqliteThreads:
    """Threads that carry out whole transactions, with connections of their own.

    The asynchronous driver goes to its thread and back for each statement, and each way waits for the interpreter
    where the event loop is busy: two inserts took 4.4 ms beside streams (median) that take 1.5 ms here.
    """

    def __init__(self, engine: AsyncEngine, num_threads: int, *, is_writing: bool = False) -> None:
        url = engine.url.set(drivername="sqlite")
        self._engine = create_engine(url, connect_args={"isolation_level": None})
        _configure_sqlite(self._engine)
        self._begun = self._engine.execution_options(manta_write=is_writing)
        self._threads = ThreadPoolExecutor(num_threads, "sqlite-writer" if is_writing else "sqlite-reader")

    async def run(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    def _run(self, work: Callable[[Connection], T]) -> T:
        with self._begun.begin() as connection:
            return work(connection)

    def close(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()


def _configure_sqlite(engine: Engine) -> None:
    """Make every connection durable and patient, and open transactions ourselves: the driver would leave DDL out."""

    def on_connect(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def on_begin(connection: Connection) -> None:
        is_writing = connection.get_execution_options().get("manta_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    def on_close(connection: Any, _record: Any) -> None:
        # A connection whose task was cancelled is closed with a statement still open, and SQLite then keeps it, and the
        # write lock with it, until Python collects that statement.
        if in_greenlet():
            connection.rollback()

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "close", on_close)
    event.listen(engine, "begin", on_begin)


def _create_sqlite(path: Path) -> None:
    """Create the file readable by its owner only, with a write-ahead log; SQLite gives the log the same mode.

    The file remembers the log. One process at a time: of two that turn it on, SQLite refuses one without any wait.
    """
    with _migration_lock(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA {_PRAGMAS[0]}")
            connection.execute("PRAGMA journal_mode=WAL")


async def _migrate(database: Database, url: URL) -> None:
    head = head_revision()
    async with database.read() as connection:
        current = await connection.run_sync(_current_revision)
    if current == head:
        return
    if database.is_sqlite:
        with _migration_lock(Path(url.database or "")):
            async with database.write() as connection:
                await connection.run_sync(_upgrade, head)
        return
    # On a connection of its own: changing large tables, or waiting for who does, may take longer than any statement.
    engine = create_async_engine(url, poolclass=NullPool, connect_args={"timeout": _CONNECT_TIMEOUT_S})
    async with Database(engine).write() as connection:
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
        await connection.run_sync(_upgrade, head)


@contextmanager
def _one_kind_of_failure() -> Iterator[None]:
    """A block in which a server that is not there, or does not answer in time, fails as the driver's own errors do.

    What asyncpg meets on its way to the server comes as the operating system's error, and a pool that runs dry because
    of it as SQLAlchemy's own.
    """
    try:
        yield
    except (OSError, PoolTimeout, sqlite3.Error) as error:
        raise OperationalError(None, None, error) from error


def _current_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _upgrade(connection: Connection, head: str) -> None:
    """Run what is missing; several processes may arrive here one after the other, and the later find nothing to do."""
    current = _current_revision(connection)
    if current == head:
        return
    if current is not None and not (_MIGRATIONS / "versions" / f"{current}.py").exists():
        raise ConfigError(f"The database is at {current}, which this version does not know: start a newer version.")
    from alembic import command  # Half a second to import, and needed only when the tables change.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _migration_lock(path: Path) -> Iterator[None]:
    """Hold the lock file beside a database; waits for whoever holds it. A killed holder releases it."""
    descriptor = os.open(f"{path}.migrating", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _reason(error: BaseException) -> str:
    """Return what went wrong, without the statement and its values."""
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().rstrip(".") or type(cause).__name__
