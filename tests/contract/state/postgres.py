"""A PostgreSQL server of our own, which may be stopped, killed and started again."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil

from deployments.state.database.connection import connect
from tests.ports import free_port
from tests.starts import started

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []


_TEMPLATE = "manta_template"


async def create_tables(url: str) -> None:
    """Bring the tables of a database up to date."""
    await (await connect(url)).close()


def run_apart(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it to its end in a thread: an event loop may be running in this one."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(main())).result()


def as_other_user() -> list[str]:
    """What goes before a server's command line: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    user = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


class PostgresServer:
    """A server with a folder and a port of its own; `start` begins it, `remove` ends it."""

    def __init__(self, primary: "PostgresServer | None" = None) -> None:
        """Make the server's folder; with `primary`, as a copy that follows it."""
        started("PostgreSQL servers")
        self.port = free_port()
        self._home = Path(mkdtemp(prefix="manta-pg-", dir="/tmp"))
        self._environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self._home)}
        self._process: subprocess.Popen[bytes] | None = None
        self._psql: subprocess.Popen[str] | None = None
        self._has_template = False
        if os.getuid() == 0:
            shutil.chown(self._home, "nobody")
        if primary is None:
            self._run("initdb", "-D", str(self._data), "-U", "manta", "-A", "trust", "-E", "UTF8", "--no-sync")
        else:
            source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "manta"]
            self._run("pg_basebackup", "-D", str(self._data), *source, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def start(self) -> None:
        """Start the server; return when it answers."""
        options = ["-D", str(self._data), "-p", str(self.port), "-k", str(self._home), "-c", "fsync=off"]
        self._process = subprocess.Popen(
            [*as_other_user(), str(PROGRAMS[-1] / "postgres"), *options, "-c", "listen_addresses=127.0.0.1"],
            env=self._environment,
            cwd=self._home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ready = [str(PROGRAMS[-1] / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + 60
        while subprocess.run(ready, capture_output=True, env=self._environment, check=False).returncode:
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)

    def speak_tls(self, certificate: Path, key: Path) -> None:
        """Have the server, from its next start, take connections over TLS too."""
        for file, name in ((certificate, "server.crt"), (key, "server.key")):
            shutil.copy(file, self._data / name)
            (self._data / name).chmod(0o600)
            if os.getuid() == 0:
                shutil.chown(self._data / name, "nobody")
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write("ssl = on\n")

    def create_database(self) -> str:
        """Return the URL of an empty database."""
        return self._create(f"manta_{time.monotonic_ns()}", "template1")

    def copy_database(self) -> str:
        """Return the URL of a database that has its tables and no rows: a copy, which is cheaper than migrations."""
        if not self._has_template:
            url = self._create(_TEMPLATE, "template1")
            run_apart(lambda: create_tables(url))
            self._has_template = True
        return self._create(f"manta_{time.monotonic_ns()}", _TEMPLATE)

    def follow(self) -> "PostgresServer":
        """Return a standby of this server, not started yet, for which every commit waits once it has been there."""
        standby = PostgresServer(self)
        self._execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._reload()
        return standby

    def refuse_writes(self) -> None:
        """Have sessions only read from now on, as those of a primary do that has been demoted."""
        self._execute("ALTER SYSTEM SET default_transaction_read_only = on")
        self._reload()

    def promote(self) -> None:
        """Make this standby the primary; return when it takes writes."""
        self._run("pg_ctl", "promote", "-D", str(self._data), "-w")

    def _reload(self) -> None:
        self._execute("SELECT pg_reload_conf() \\g /dev/null")

    def pause(self) -> None:
        """Stop every process of the server where it is: connections stay, and nothing answers."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        """Let the server go on."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # The first, once it goes on, forgets those that had ended.
                process.resume()

    def kill(self) -> None:
        """End every process of the server at once, as a machine that loses its power does."""
        assert self._process is not None
        processes = self._processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(timeout=30)
        psutil.wait_procs(processes[1:], timeout=30)  # A new server does not start beside one of an old server's.

    def remove(self) -> None:
        """End the server, and what it wrote."""
        if self._psql is not None:
            self._psql.communicate()
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self._process.send_signal(signal.SIGQUIT)  # Which waits for nobody, and writes nothing more.
            self._process.wait(timeout=30)
        # shutil takes half a minute for hundreds of databases.
        subprocess.run(["rm", "-rf", str(self._home)], check=False)

    def _processes(self) -> list[psutil.Process]:
        assert self._process is not None
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def _create(self, name: str, template: str) -> str:
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return f"postgresql+asyncpg://manta@127.0.0.1:{self.port}/{name}"

    def _execute(self, statement: str) -> None:
        """Have one psql, which stays connected, carry out a statement."""
        if self._psql is None or self._psql.poll() is not None:
            program = [str(PROGRAMS[-1] / "psql"), "-qX", "-h", "127.0.0.1", "-p", str(self.port), "-U", "manta"]
            pipe = subprocess.PIPE
            self._psql = subprocess.Popen(
                [*program, "postgres"],
                env=self._environment,
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        self._psql.stdin.write(f"{statement};\n\\echo done\n")
        self._psql.stdin.flush()
        answer = self._psql.stdout.readline()
        assert answer == "done\n", answer

    def _run(self, program: str, *arguments: str) -> None:
        command = [*as_other_user(), str(PROGRAMS[-1] / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, env=self._environment, cwd=self._home)
