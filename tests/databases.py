"""Databases to test against: a SQLite file, and a PostgreSQL server of our own, one for each process of tests.

Tables are made once, by the migrations, and copied for each test: opening a copy takes a tenth of the time.
"""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from deployments.state.database.connection import Database, connect
from tests import needs
from tests.contract.state.postgres import PostgresServer, create_tables, run_apart


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that lives as long as the tests; no test may harm it."""
    for server in _made_server():
        server.start()
        yield server


@pytest.fixture(scope="session")
def resting_postgres() -> Iterator[PostgresServer]:
    """The server of all tests that stop or kill one: it does not run between them."""
    yield from _made_server()


@pytest.fixture
def mortal_postgres(resting_postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server that the test may stop or kill."""
    resting_postgres.start()
    yield resting_postgres
    resting_postgres.kill()


def _made_server() -> Iterator[PostgresServer]:
    needs.postgresql()
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with its tables and no rows."""
    path = tmp_path_factory.mktemp("template") / "manta.db"
    run_apart(lambda: create_tables(f"sqlite+aiosqlite:///{path}"))
    return path


@pytest.fixture
def sqlite_at(sqlite_template: Path) -> Callable[[Path], str]:
    """Puts a SQLite database with its tables and no rows at a path; returns its URL."""

    def copy(path: Path) -> str:
        shutil.copy(sqlite_template, path)  # With its mode: nobody else may read it.
        return f"sqlite+aiosqlite:///{path}"

    return copy


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a PostgreSQL database with its tables and no rows."""
    url = postgres_server.copy_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with its tables and no rows, of each kind in turn."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return str(request.getfixturevalue("sqlite_at")(tmp_path / "manta.db"))


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'manta.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url
    server.drop_database(url)


more_on_postgresql = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.exhaustive)], indirect=True
)
"""For a test that costs much and says of PostgreSQL what another says of it already."""


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open database."""
    opened = await connect(database_url)
    yield opened
    await opened.close()
