"""Databases to test against: a SQLite file, and a PostgreSQL server of our own."""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from deployments.state.database import Database, connect
from tests.ports import free_port

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []


def as_other_user() -> list[str]:
    """What goes before a server's command line: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    user = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[int]:
    """The port of a server that lives as long as the tests."""
    if not PROGRAMS:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: postgresql)")
    programs, home, port = PROGRAMS[-1], Path(mkdtemp(prefix="manta-pg-", dir="/tmp")), free_port()
    data = home / "data"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(home)}
    if os.getuid() == 0:
        shutil.chown(home, "nobody")
    initdb = [str(programs / "initdb"), "-D", str(data), "-U", "manta", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*as_other_user(), *initdb], check=True, capture_output=True, env=environment, cwd=home)
    options = ["-D", str(data), "-p", str(port), "-k", str(home), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    server = subprocess.Popen(
        [*as_other_user(), str(programs / "postgres"), *options],
        env=environment,
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ready = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
        deadline = time.monotonic() + 30
        while subprocess.run(ready, capture_output=True, env=environment, check=False).returncode:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: int) -> str:
    """The URL of an empty database."""
    name = f"manta_{time.monotonic_ns()}"
    command = [str(PROGRAMS[-1] / "createdb"), "-h", "127.0.0.1", "-p", str(postgres_server), "-U", "manta", name]
    subprocess.run(command, check=True, capture_output=True)
    return f"postgresql+asyncpg://manta@127.0.0.1:{postgres_server}/{name}"


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
