"""The metadata database, SQLite or PostgreSQL: one engine per process, transactions, and the tables at the start.

Every store of `deployments.state` works on a `Database`. All failures on the way to the server are DBAPIErrors.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, CursorResult, Executable, Insert, NullPool, Table, insert, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from deployments.config import ConfigError
from deployments.patience import USUAL, Patience
from deployments.state.database.migrations import current_revision, head_revision, upgrade
from deployments.state.database.postgres import (
    LOOK_S,
    create_pool,
    create_postgres,
    lacks_primary,
    lost_server,
    until_unused,
)
from deployments.state.database.sqlite import (
    READERS,
    SqliteThreads,
    configure_sqlite,
    create_sqlite,
    empty_log,
    migration_lock,
)
from deployments.waiting import worth_logging

logger = logging.getLogger(__name__)
T = TypeVar("T")

_PATIENT_S = 1.0
_MIGRATION_LOCK = 0x6D616E7461  # "manta": the advisory lock that one migrating process holds on PostgreSQL.


class Database:
    """An open database, created by `connect`. Every method raises DBAPIError if the database is away or fails."""

    def __init__(self, engine: AsyncEngine, stale: AsyncEngine | None = None, patience: Patience = USUAL) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._stale = stale
        self._failover_s = patience.failover_s
        self._lost_at: float | None = None
        self._writing = engine.execution_options(manta_write=True)
        # A statement of PostgreSQL sees what is committed when it begins, in a transaction or not. Without a
        # transaction it needs no trips for the begin and the end.
        self._alone = engine if self.is_sqlite else engine.execution_options(isolation_level="AUTOCOMMIT")
        self._writer = SqliteThreads(engine, 1, is_writing=True) if self.is_sqlite else None
        self._reader = SqliteThreads(engine, READERS) if self.is_sqlite else None

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection to read from. On PostgreSQL each statement is one trip, and sees what is committed then."""
        with _operational_errors():
            async with self._begin(self._alone) as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that writes; it is committed when the block ends without an error.

        After a DBAPIError nobody knows whether the commit took effect.
        """
        with _operational_errors():
            async with self._begin(self._writing) as connection:
                yield connection

    async def fetch(self, query: Executable) -> CursorResult[*tuple[Any, ...]]:
        """Return the result of a query, with all rows read."""
        async with self.read() as connection:
            return await connection.execute(query)

    async def execute(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> CursorResult[*tuple[Any, ...]]:
        """Run one statement in a transaction that writes; return its result, with all rows read."""
        async with self.write() as connection:
            return await connection.execute(statement, parameters)

    @asynccontextmanager
    async def read_stale(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that reads from any of several servers, which may be behind the primary."""
        with _operational_errors():
            async with (self._stale or self.engine).begin() as connection:
                yield connection

    @property
    def has_standby(self) -> bool:
        """Whether there are several servers, so that a standby can be read without a primary."""
        return self._stale is not None

    @property
    def has_primary(self) -> bool:
        """Whether the primary was there at the last use."""
        return self._lost_at is None

    async def repeat(self, work: Callable[[bool], Awaitable[T]], patience_s: float = 0.0) -> T:
        """Return the result of `work`, which runs again if the primary was lost while it ran.

        `work` is called with whether it runs again: the try before may have been committed although its answer was
        lost. Work that cannot be asked for again may wait `patience_s` for the next primary, if that is longer than
        usual and there are several servers.
        """
        is_again, until = False, None
        while True:
            try:
                return await work(is_again)
            except DBAPIError as error:
                until = time.monotonic() + patience_s if until is None else until
                is_patient = self._stale is not None and time.monotonic() < until
                if not (lost_server(error) or lacks_primary(error)) or not (self._may_wait() or is_patient):
                    raise
            is_again = True
            await asyncio.sleep(LOOK_S)

    async def read_at_once(self, work: Callable[[Connection], T]) -> T:
        """Return the result of `work`, which only reads: the quick way, for reads in a request."""
        if self._reader is not None:
            return await self._reader.run(work)

        async def read(is_again: bool) -> T:
            async with self.read() as connection:
                return await connection.run_sync(work)

        return await self.repeat(read)

    async def write_at_once(self, work: Callable[[Connection], None]) -> None:
        """Run `work` in a transaction that writes, without returning to the event loop between its statements."""
        if self._writer is not None:
            await self._writer.run(work)
            return
        async with self.write() as connection:
            await connection.run_sync(work)

    async def write_alone(self, statement: Executable, parameters: Mapping[str, Any]) -> None:
        """Run and commit one statement: on PostgreSQL in one trip."""
        with _operational_errors():
            async with self._begin(self._alone) as connection:
                await connection.execute(statement, parameters)

    @asynccontextmanager
    async def _begin(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        """Open a transaction, on the next primary if there is none now."""
        async with AsyncExitStack() as stack:
            while True:
                try:
                    connection = await stack.enter_async_context(engine.begin())
                    break
                except (OSError, DBAPIError) as error:
                    if not lost_server(error) or not self._may_wait():
                        raise
                await asyncio.sleep(LOOK_S)
            self._lost_at = None
            try:
                yield connection
            except DBAPIError as error:
                if lost_server(error):
                    self._note_lost()
                raise

    def _may_wait(self) -> bool:
        """Return whether a failover may be under way: there are several servers, and the primary was lost just now."""
        return self._stale is not None and time.monotonic() - self._note_lost() < self._failover_s

    def _note_lost(self) -> float:
        """Note that the primary is lost; return the time of the loss, on the monotonic clock."""
        if self._lost_at is None:
            self._lost_at = time.monotonic()
        return self._lost_at

    async def empty_log(self) -> None:
        """Write SQLite's log into the database and empty it: until then it still holds deleted content.

        A long read leaves the log for the next time. Nothing happens on PostgreSQL.
        """
        if not self.is_sqlite:
            return
        with _operational_errors():
            async with self.engine.connect() as connection:
                await empty_log((await connection.get_raw_connection()).driver_connection)

    def upsert(self, table: Table, key: list[str], adding: Collection[str] = ()) -> Executable:
        """Return an INSERT that updates a row with the same key: adds to the columns `adding`, replaces the others."""
        statement = sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)
        values = {
            column.name: column + statement.excluded[column.name]
            if column.name in adding
            else statement.excluded[column.name]
            for column in table.c
            if column.name not in key
        }
        return statement.on_conflict_do_update(index_elements=key, set_=values)

    def insert(self, table: Table, *, is_again: bool) -> Insert:
        """Return an INSERT; if it `is_again` tried, a row with the same key stays as it is."""
        return self.insert_or_ignore(table) if is_again else insert(table)

    def insert_or_ignore(self, table: Table) -> Insert:
        """Return an INSERT after which a row with the same key stays as it is."""
        statement = sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)
        return statement.on_conflict_do_nothing()

    async def close(self) -> None:
        """Close every connection, after the transactions that run."""
        for threads in (self._writer, self._reader):
            if threads is not None:
                await asyncio.to_thread(threads.close)
        for engine in (self.engine, self._stale):
            if engine is not None:
                await until_unused(engine.pool)
                await engine.dispose()


async def connect(url: str, patience: Patience = USUAL, *, is_patient: bool = False) -> Database:
    """Open the database and bring its tables up to date; with `is_patient`, wait until it has a primary.

    Raises:
        ConfigError: the database cannot be reached, or was written by a newer version.
    """
    parsed = make_url(url)
    try:
        database = Database(*await create_engines(parsed, patience), patience)
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise ConfigError(f"The database cannot be opened: {reason_of(error)}.") from None
    num_failures = 0
    while True:
        try:
            await _migrate(database, parsed, patience)
        except (DBAPIError, OSError) as error:
            place = parsed.render_as_string(hide_password=True)
            failure = ConfigError(f"The database {place} cannot be used: {reason_of(error)}.")
            if not is_patient or not database.has_standby or not lacks_primary(error):
                await database.close()
                raise failure from error
            num_failures += 1
            if worth_logging(num_failures):
                logger.warning("%s It is tried again until there is a primary.", failure)
            await asyncio.sleep(_PATIENT_S)
        except BaseException:
            await database.close()
            raise
        else:
            return database


async def create_engines(url: URL, patience: Patience) -> tuple[AsyncEngine, AsyncEngine | None]:
    """Return the engine of a database, and for one of several servers an engine that reads from any of them."""
    if url.drivername.startswith("sqlite"):
        path = Path(url.database or "")
        path.parent.mkdir(parents=True, exist_ok=True)
        logging.getLogger("aiosqlite").setLevel(logging.INFO)  # At DEBUG it logs what is stored.
        engine = create_async_engine(url, connect_args={"isolation_level": None})
        configure_sqlite(engine.sync_engine)
        await asyncio.to_thread(create_sqlite, path)
        return engine, None
    if "," not in str(url.query.get("host", "")):
        return create_pool(url, patience), None
    return create_pool(url, patience), create_pool(url.update_query_dict({"target_session_attrs": "any"}), patience)


def may_pass(error: Exception) -> bool:
    """Return whether the same statement may succeed later: the database is away, and not the statement at fault."""
    return isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | DataError | ProgrammingError)


async def _migrate(database: Database, url: URL, patience: Patience) -> None:
    async with database.read() as connection:
        if await connection.run_sync(current_revision) == head_revision():
            return
    if database.is_sqlite:
        with migration_lock(Path(url.database or "")):
            async with database.write() as connection:
                await connection.run_sync(upgrade)
        return
    # On a connection of its own without a timeout: to change large tables, or to wait for a process that does, is slow.
    engine = create_postgres(
        url, connect_timeout_s=patience.database_connect_s, command_timeout_s=None, poolclass=NullPool
    )
    async with Database(engine).write() as connection:
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
        await connection.run_sync(upgrade)


@contextmanager
def _operational_errors() -> Iterator[None]:
    """Raise the errors of an absent or silent server as OperationalError, like the driver's own errors.

    asyncpg raises errors of the operating system on the way to the server, SQLAlchemy its own when the pool is empty.
    """
    try:
        yield
    except (OSError, PoolTimeout, sqlite3.Error) as error:
        raise OperationalError(None, None, error) from error


def reason_of(error: BaseException) -> str:
    """Return the driver's message, without the statement and its values."""
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().rstrip(".") or type(cause).__name__
