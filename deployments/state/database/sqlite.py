"""SQLite: creates the file, sets up connections, and runs whole transactions in threads.

SQLite has one writer at a time. A transaction that writes takes the write lock at its begin and waits for it there,
instead of failing half-way when two readers want to write.
"""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util.concurrency import in_greenlet

T = TypeVar("T")

READERS = 4
_LOG_BUSY_MS = 200
_BUSY_TIMEOUT = "PRAGMA busy_timeout=10000"
_PRAGMAS = (
    _BUSY_TIMEOUT,
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA secure_delete=ON",  # Deleted bytes are overwritten: deleting a wrapped key must destroy it.
)


class SqliteThreads:
    """Threads that run whole transactions, with connections of their own.

    The asynchronous driver goes to its thread and back for each statement, and each way waits for the interpreter lock
    while the event loop is busy: two inserts beside streams took 4.4 ms (median) and take 1.5 ms here.
    """

    def __init__(self, engine: AsyncEngine, num_threads: int, *, is_writing: bool = False) -> None:
        url = engine.url.set(drivername="sqlite")
        self._engine = create_engine(url, connect_args={"isolation_level": None})
        configure_sqlite(self._engine)
        self._begun = self._engine.execution_options(manta_write=is_writing)
        self._threads = ThreadPoolExecutor(num_threads, "sqlite-writer" if is_writing else "sqlite-reader")

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Return the result of `work`, run in a transaction of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    def _run(self, work: Callable[[Connection], T]) -> T:
        with self._begun.begin() as connection:
            return work(connection)

    def close(self) -> None:
        """Wait for the running transactions, and close the connections."""
        self._threads.shutdown()
        self._engine.dispose()


def configure_sqlite(engine: Engine) -> None:
    """Set up every connection, and begin transactions here: the driver's transactions leave DDL out."""

    def on_connect(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(pragma)
        cursor.close()

    def on_begin(connection: Connection) -> None:
        is_writing = connection.get_execution_options().get("manta_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    def on_close(connection: Any, _record: Any) -> None:
        # A connection whose task was cancelled is closed with an open statement. SQLite would keep it, and its write
        # lock, until Python collects that statement.
        if in_greenlet():
            connection.rollback()

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "close", on_close)
    event.listen(engine, "begin", on_begin)


def create_sqlite(path: Path) -> None:
    """Create the file, readable by its owner only, with a write-ahead log; SQLite gives the log the same mode.

    The file keeps this mode. One process at a time: if two turn it on, SQLite refuses one at once.
    """
    with migration_lock(path):
        # Only a new file is opened here. To close a file gives up the locks that SQLite holds on it in this process:
        # another process could then delete the log while it is in use (sqlite.org/howtocorrupt.html, 2.2).
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(_BUSY_TIMEOUT)
            connection.execute("PRAGMA journal_mode=WAL")


def open_read_only(path: Path) -> AsyncEngine:
    """Return an engine that reads a database, and creates no file beside it.

    SQLite reads a file with a write-ahead log only beside a file of its own, which is there while a process has the
    database open. Otherwise the log is empty, but after a crash, and is not read.
    """
    is_open = path.with_name(f"{path.name}-shm").exists()
    options = {"mode": "ro", "uri": "true"} if is_open else {"mode": "ro", "immutable": "1", "uri": "true"}
    url = URL.create("sqlite+aiosqlite", database=f"file:{quote(str(path))}", query=options)
    engine = create_async_engine(url, connect_args={"isolation_level": None})
    configure_sqlite(engine.sync_engine)
    return engine


async def empty_log(driver: Any) -> None:
    """Write the log into the database and empty it, unless a long read uses it; nothing can write meanwhile."""
    await driver.execute_fetchall(f"PRAGMA busy_timeout={_LOG_BUSY_MS}")
    try:
        await driver.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        await driver.execute_fetchall(_BUSY_TIMEOUT)


@contextmanager
def migration_lock(path: Path) -> Iterator[None]:
    """Hold the lock file beside a database, once no other process does. A killed process releases it."""
    descriptor = os.open(f"{path}.migrating", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
