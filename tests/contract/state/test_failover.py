"""A primary and its standby; either may die: connections go to whichever takes writes."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError

from deployments.config import ConfigError
from deployments.patience import USUAL
from deployments.state.database.connection import Database, connect
from deployments.state.database.postgres import lacks_primary, lost_server
from deployments.state.database.tables.service import regions
from deployments.state.identity.key_store import MAX_BEHIND_S, KeyStore
from deployments.state.identity.keys import NewKey, digest_of
from deployments.state.regions.register import RegionRegister
from serve_app.errors.capacity import NoPrimary
from serve_app.errors.translate import translate_error
from tests.contract.state.postgres import PostgresServer, create_tables, run_apart
from tests.waiting import eventually

IMPATIENT = replace(USUAL, failover_s=0.5)


@pytest.fixture(scope="module")
def stopped_pair(resting_postgres: PostgresServer) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and its standby, with their tables, stopped and kept."""
    primary = resting_postgres
    primary.start()
    run_apart(lambda: create_tables(several(primary)))
    standby = PostgresServer(primary)
    standby.start()
    primary.keep()  # Which ends once its standby has everything.
    standby.keep()
    yield primary, standby
    primary.take_back()
    standby.remove()


@pytest.fixture
def pair(stopped_pair: tuple[PostgresServer, PostgresServer]) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and its synchronous standby, as they were kept."""
    primary, standby = stopped_pair
    for server in stopped_pair:
        server.take_back()
    primary.start("synchronous_standby_names=*")
    standby.start()
    yield primary, standby
    for server in stopped_pair:
        server.kill()


def several(*servers: PostgresServer) -> str:
    hosts, ports = ",".join("127.0.0.1" for _ in servers), ",".join(str(server.port) for server in servers)
    return f"postgresql+asyncpg://manta@/postgres?host={hosts}&port={ports}&target_session_attrs=read-write"


@pytest.fixture
async def database(pair: tuple[PostgresServer, PostgresServer]) -> AsyncIterator[Database]:
    """The pair's database, opened with the standby named first."""
    opened = await connect(several(pair[1], pair[0]))
    yield opened
    await opened.close()


@pytest.fixture
async def impatient(pair: tuple[PostgresServer, PostgresServer]) -> AsyncIterator[Database]:
    """The same, waiting half a second for the next primary."""
    opened = await connect(several(pair[1], pair[0]), IMPATIENT)
    yield opened
    await opened.close()


async def sign_in(database: Database, name: str) -> None:
    async with database.write() as connection:
        await connection.execute(insert(regions).values(name=name, seen_at=1.0, facts={}))


async def names(database: Database) -> set[str]:
    async with database.read() as connection:
        return set((await connection.scalars(select(regions.c.name))).all())


async def test_writes_wait_for_the_standby_to_be_the_primary_and_nothing_is_lost(
    pair: tuple[PostgresServer, PostgresServer], database: Database
) -> None:
    primary, standby = pair
    await asyncio.gather(*(sign_in(database, f"a{number}") for number in range(8)))
    primary.kill()
    writing = [asyncio.create_task(sign_in(database, f"b{number}")) for number in range(16)]
    await asyncio.sleep(1.0)
    assert not any(task.done() for task in writing)
    standby.promote()
    await asyncio.gather(*writing)
    assert await names(database) == {*(f"a{number}" for number in range(8)), *(f"b{number}" for number in range(16))}


async def test_without_a_primary_writes_fail_soon_and_then_at_once_with_a_code(
    pair: tuple[PostgresServer, PostgresServer], impatient: Database
) -> None:
    await sign_in(impatient, "before")
    pair[0].kill()
    with pytest.raises(DBAPIError) as caught:
        await sign_in(impatient, "meanwhile")
    assert lacks_primary(caught.value)
    refusal = translate_error(caught.value)
    assert isinstance(refusal, NoPrimary)
    assert (refusal.status, refusal.code, refusal.headers["retry-after"]) == (503, "database_without_primary", "15")
    assert "127.0.0.1" not in refusal.message
    assert not impatient.has_primary
    begun = time.monotonic()
    for _ in range(20):
        with pytest.raises(DBAPIError):
            await sign_in(impatient, "meanwhile")
    assert time.monotonic() - begun < 5
    async with impatient.read_stale() as connection:
        assert (await connection.scalars(select(regions.c.name))).all() == ["before"]
    pair[1].promote()
    await eventually(lambda: _signs_in(impatient))
    assert impatient.has_primary


async def _signs_in(database: Database) -> bool:
    try:
        await sign_in(database, "after")
    except DBAPIError:
        return False
    return True


async def test_primary_that_became_a_standby_is_left_by_every_connection(
    pair: tuple[PostgresServer, PostgresServer], database: Database
) -> None:
    await asyncio.gather(*(sign_in(database, f"a{number}") for number in range(4)))
    pair[0].refuse_writes()
    with pytest.raises(DBAPIError) as caught:
        for number in range(1000):  # Sessions hear of it after a moment.
            await sign_in(database, f"refused{number}")
    assert lacks_primary(caught.value)
    assert lost_server(caught.value)
    pair[1].promote()
    await asyncio.gather(*(sign_in(database, f"b{number}") for number in range(4)))
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT inet_server_port()")) == pair[1].port


async def test_repeated_work_learns_that_it_was_tried(
    pair: tuple[PostgresServer, PostgresServer], database: Database
) -> None:
    tries = []

    async def work(is_again: bool) -> str:
        tries.append(is_again)
        async with database.write() as connection:
            statement = database.insert(regions, is_again=is_again).values(name="once", seen_at=1.0, facts={})
            await connection.execute(statement)
        if not is_again:
            pair[0].kill()
            pair[1].promote()
            async with database.write() as connection:  # Fails as a commit does whose answer never came.
                raise DBAPIError(None, None, ConnectionResetError("gone"))
        return "done"

    assert await database.repeat(work) == "done"
    assert tries == [False, True]
    assert await names(database) == {"once"}


async def test_connection_ends_when_its_other_side_falls_silent(database: Database) -> None:
    async with database.engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        own = raw._transport.get_extra_info("socket")
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000


async def test_start_says_why_there_is_no_primary_and_a_patient_one_waits(
    pair: tuple[PostgresServer, PostgresServer],
) -> None:
    url = several(*pair)
    await (await connect(url)).close()
    pair[0].kill()
    with pytest.raises(ConfigError, match="no server takes writes") as caught:
        await connect(url, IMPATIENT)
    assert f"{pair[0].port} refuses connections" in str(caught.value)
    assert f"{pair[1].port} is a standby" in str(caught.value)
    starting = asyncio.create_task(connect(url, IMPATIENT, is_patient=True))
    await asyncio.sleep(1.0)
    assert not starting.done()
    pair[1].promote()
    await (await starting).close()


async def test_server_that_refuses_the_user_is_no_failover(pair: tuple[PostgresServer, PostgresServer]) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        await connect(several(*pair).replace("/postgres?", "/nothing?"), is_patient=True)


async def _is_found(keys: KeyStore, digest: bytes, key_id: str) -> bool:
    try:
        _, found = await keys.find(digest)
    except DBAPIError:
        return False
    return found is not None and found.key_id == key_id


async def test_key_is_found_on_the_standby_unless_that_is_far_behind(
    pair: tuple[PostgresServer, PostgresServer], impatient: Database
) -> None:
    now = time.time()
    keys = KeyStore(impatient, b"p" * 32, clock=lambda: now)
    key, secret = await keys.create(NewKey())
    await RegionRegister(impatient).sign_in("us", {})
    pair[0].kill()
    digest = digest_of(secret, b"p" * 32)
    with pytest.raises(DBAPIError):
        await keys.find(digest)  # Finds out that there is no primary.
    # A commit waits until the standby has it, not until queries there see it.
    await eventually(lambda: _is_found(keys, digest, key.key_id))
    now += MAX_BEHIND_S + 1
    with pytest.raises(DBAPIError, match="too far behind"):
        await keys.find(digest)
