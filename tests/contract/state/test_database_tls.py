"""PostgreSQL over TLS, as libpq writes it in a URL: only a server with the right certificate is spoken to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from deployments.config import ConfigError
from deployments.state.config import parse_database_url
from deployments.state.database.connection import connect
from tests.certificates import Authority
from tests.contract.state.postgres import PostgresServer


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def url(authority: Authority, resting_postgres: PostgresServer, tmp_path: Path) -> Iterator[str]:
    authority.issue(tmp_path / "tls.crt", tmp_path / "tls.key", ("localhost",))
    resting_postgres.start_with_tls(tmp_path / "tls.crt", tmp_path / "tls.key")
    yield resting_postgres.create_database()
    resting_postgres.kill()


def with_tls(url: str, host: str, authority: Authority, folder: Path) -> str:
    trusted = folder / "ca.crt"
    trusted.write_text(authority.pem)
    return parse_database_url(f"{url.replace('127.0.0.1', host)}?sslmode=verify-full&sslrootcert={trusted}")


async def test_connections_are_encrypted(url: str, authority: Authority, tmp_path: Path) -> None:
    database = await connect(with_tls(url, "localhost", authority, tmp_path))
    async with database.read() as connection:
        query = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        assert (await connection.execute(query)).scalar_one() is True
    await database.close()


async def test_server_of_another_authority_or_name_is_refused(url: str, authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificate verify failed"):
        await connect(with_tls(url, "localhost", Authority(), tmp_path))
    with pytest.raises(ConfigError, match=r"IP address mismatch|certificate is not valid for '127.0.0.1'"):
        await connect(with_tls(url, "127.0.0.1", authority, tmp_path))
