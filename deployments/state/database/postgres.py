"""Connections to PostgreSQL: to one server, or to the primary of several.

After a failover, connections to the old primary lead nowhere or refuse to write. The pool drops all of them and
connects to the new primary. All servers are asked at once: a server that is gone does not answer, and would hold up the
others.

The primary may be far away, so no message is sent only to test a connection. A closed connection is known here, and a
dead one fails at the begin of a transaction, which can wait for the next primary.
"""

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import asyncpg
from asyncpg.exceptions import TargetServerAttributeNotMatched
from sqlalchemy import URL, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import Pool, QueuePool
from sqlalchemy.util.concurrency import await_

from deployments.patience import Patience
from deployments.state.database.dsn import with_address

_Asking = asyncio.Task[asyncpg.Connection]

LOOK_S = 0.25
_OTHERS_S = 2.0
"""The time for the other servers once one has answered that it takes no writes: seven trips between regions."""
_PAUSE_S = 0.5
"""The time without another attempt after no primary was found: requests fail at once with the same reason."""
_SILENT_S = 5
"""A server that acknowledges nothing for this time is gone. The bytes of a slow statement are acknowledged."""
_IDLE_S = 10
"""PostgreSQL ends a session that is idle in a transaction for this time: a process that is paused or cut off would hold
rows that others need. No transaction of the service waits for anything but the database."""
READ_ONLY: Final = "25006"
_GONE: Final = (READ_ONLY, "57P01", "57P02", "57P03")  # Shut down, crashed, starting up.


class NoPrimary(ConnectionError):
    """None of several servers takes writes; the message has the reasons, for operators."""


class Servers:
    """The servers of one database, as an engine connects to them."""

    def __init__(self) -> None:
        self._reason = ""
        self._asked_again_at = float("-inf")

    async def connect(
        self, *, host: str | Sequence[str] = "", port: int | Sequence[int] = 0, **arguments: Any
    ) -> asyncpg.Connection:
        """Return a connection to a server with the wanted attributes; the arguments are asyncpg's.

        Raises:
            NoPrimary: none of several servers has them.
            OSError: there is one server, and it cannot be reached.
            asyncpg.PostgresError: a server refuses the connection.
        """
        if isinstance(host, str):
            place = {name: value for name, value in (("host", host), ("port", port)) if value}
            return await _set_up(await asyncpg.connect(**place, **arguments), arguments)
        if time.monotonic() < self._asked_again_at:
            raise NoPrimary(self._reason)
        ports = [port] * len(host) if isinstance(port, int) else port
        try:
            connection = await _first_of(list(zip(host, ports, strict=True)), arguments)
        except NoPrimary as error:
            self._reason, self._asked_again_at = str(error), time.monotonic() + _PAUSE_S
            raise
        return await _set_up(connection, arguments)


def create_postgres(
    url: URL, *, connect_timeout_s: float, command_timeout_s: float | None, **options: Any
) -> AsyncEngine:
    """Return an engine that connects through `Servers`; `options` are SQLAlchemy's."""
    url, arguments = with_address(url)
    connect_args = {
        **arguments,
        "timeout": connect_timeout_s,
        "command_timeout": command_timeout_s,
        "async_creator_fn": Servers().connect,
    }
    engine = create_async_engine(url, connect_args=connect_args, **options)
    event.listen(engine.sync_engine, "handle_error", _drop_connections)
    event.listen(engine.sync_engine, "checkout", _replace_ended)
    engine.sync_engine.dialect.do_begin = _begin_now  # type: ignore[assignment]
    return engine


def create_pool(url: URL, patience: Patience) -> AsyncEngine:
    """Return an engine with a pool of connections for short statements."""
    return create_postgres(
        url,
        connect_timeout_s=patience.database_connect_s,
        command_timeout_s=patience.database_answer_s,
        pool_size=4,
        max_overflow=4,
        pool_timeout=patience.database_answer_s,
    )


async def until_unused(pool: Pool) -> None:
    """Return when every connection is back in its pool: a pool that is disposed of never closes the others."""
    while isinstance(pool, QueuePool) and pool.checkedout():  # noqa: ASYNC110  # A pool sends no event.
        await asyncio.sleep(LOOK_S)


def lacks_primary(error: BaseException) -> bool:
    """Return whether a statement failed because its server, or every server, takes no writes."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, NoPrimary)
    return isinstance(error.orig, NoPrimary) or getattr(error.orig, "sqlstate", None) == READ_ONLY


def lost_server(error: BaseException) -> bool:
    """Return whether an error means that the server is away, or not the primary any more."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and lost_server(error.orig))
    return isinstance(error, OSError) or getattr(error, "sqlstate", None) in _GONE


def _drop_connections(context: ExceptionContext) -> None:
    """Have the pool drop every connection when one fails because its server is gone (called by SQLAlchemy)."""
    if lost_server(context.original_exception):
        context.is_disconnect = True


def _replace_ended(connection: Any, _record: object, _proxy: object) -> None:
    """Have the pool replace a connection that was closed meanwhile (called by SQLAlchemy)."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError("the connection has ended")


def _begin_now(connection: Any) -> None:
    """Begin a transaction now (called by SQLAlchemy, which else begins it with the first statement)."""
    await_(connection._start_transaction())


async def _first_of(places: Sequence[tuple[str, int]], arguments: dict[str, Any]) -> asyncpg.Connection:
    """Return the first connection to a server with the wanted attributes."""
    asking = {
        asyncio.create_task(asyncpg.connect(host=host, port=port, **arguments)): f"{host}:{port}"
        for host, port in places
    }
    chosen = None
    try:
        chosen = await _first_chosen(asking)
        return chosen.result()
    finally:
        for task in asking:
            task.cancel()
        for task in asking:
            if task is not chosen:
                with suppress(Exception, asyncio.CancelledError):
                    (await task).terminate()


async def _first_chosen(asking: Mapping[_Asking, str]) -> _Asking:
    """Return the first task that has connected; `asking` has the address of each."""
    pending, reasons = set(asking), []
    wait_s = None
    while pending:
        done, pending = await asyncio.wait(pending, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is None:
                return task
            if not isinstance(error, TargetServerAttributeNotMatched) and not lost_server(error):
                raise error
            reasons.append(f"{asking[task]} {_reason(error)}")
            if isinstance(error, TargetServerAttributeNotMatched):
                wait_s = _OTHERS_S
        if not done:
            reasons += [f"{asking[task]} does not answer" for task in pending]
            break
    raise NoPrimary(f"no server takes writes: {', '.join(sorted(reasons))}")


def _reason(error: BaseException) -> str:
    if isinstance(error, TargetServerAttributeNotMatched):
        return "is a standby"
    if isinstance(error, TimeoutError):
        return "does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    return f"fails ({str(error).strip().rstrip('.') or type(error).__name__})"


async def _set_up(connection: asyncpg.Connection, arguments: Mapping[str, Any]) -> asyncpg.Connection:
    """Have both sides end the connection when the other side is silent; return it."""
    _end_when_silent(connection)
    if arguments.get("command_timeout") is not None:  # A migration may pause between its statements.
        try:
            await connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_S}s'")
        except BaseException:
            connection.terminate()
            raise
    return connection


def _end_when_silent(connection: asyncpg.Connection) -> None:
    """Have the system end a connection when the other side acknowledges nothing, also while it is idle."""
    own = connection._transport.get_extra_info("socket")
    if own is None or own.family == socket.AF_UNIX:
        return
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _SILENT_S - 2)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_S * 1000)
