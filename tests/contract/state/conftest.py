"""Databases to test against: a SQLite file, and a PostgreSQL server of our own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deployments.state.database import Database, connect
from tests import needs
from tests.contract.state.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that lives as long as the tests; no test may harm it."""
    yield from _run_server()


@pytest.fixture
def mortal_postgres() -> Iterator[PostgresServer]:
    """A server for one test, which may stop or kill it."""
    yield from _run_server()


def _run_server() -> Iterator[PostgresServer]:
    needs.postgresql()
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of an empty database."""
    return postgres_server.create_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'manta.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open database with its tables."""
    opened = await connect(database_url)
    yield opened
    await opened.close()
