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
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil

from deployments.state.database.connection import connect
from tests.ports import free_port
from tests.starts import started
from tests.waiting import pauses

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []

_TEMPLATE = "manta_template"
# Shared memory in the server's own folder: what a killed server had elsewhere would stay.
_SETTINGS = ("fsync=off", "listen_addresses=127.0.0.1", "dynamic_shared_memory_type=mmap")


async def create_tables(url: str) -> None:
    """Bring the tables of a database up to date."""
    await (await connect(url)).close()


def create_tables_together(url: str, barrier: Barrier) -> None:
    """Bring the tables up to date once all processes at the barrier are there."""
    barrier.wait(60)
    asyncio.run(create_tables(url))


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


def _roomy_memory() -> Path | None:
    """Return a folder in memory, if there is one with room: to copy a database takes a third of the processor time."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 4 * 1024**3 else None


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class PostgresServer:
    """A server with a folder and a port of its own; `start` begins it, `remove` ends it."""

    def __init__(self, primary: "PostgresServer | None" = None) -> None:
        """Make the server's folder; with `primary`, as a copy that follows it."""
        started("PostgreSQL servers")
        self.port = free_port()
        self._home = Path(mkdtemp(prefix="manta-pg-", dir=_roomy_memory() or "/tmp"))
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

    @property
    def _kept(self) -> Path:
        return self._home / "kept"

    def start(self, *settings: str) -> None:
        """Start the server, with these settings until it ends; return when it answers."""
        options = ["-D", str(self._data), "-p", str(self.port), "-k", str(self._home)]
        for setting in (*_SETTINGS, *settings):
            options += ["-c", setting]
        self._process = subprocess.Popen(
            [*as_other_user(), str(PROGRAMS[-1] / "postgres"), *options],
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

    def start_with_tls(self, certificate: Path, key: Path) -> None:
        """Start the server so that it takes connections over TLS too."""
        for file, name in ((certificate, "server.crt"), (key, "server.key")):
            shutil.copy(file, self._data / name)
            (self._data / name).chmod(0o600)
            if os.getuid() == 0:
                shutil.chown(self._data / name, "nobody")
        self.start("ssl=on")

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

    def drop_database(self, url: str) -> None:
        """Remove a database, even while clients are connected to it."""
        self._execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def keep(self) -> None:
        """Stop the server, and keep its files as they are now."""
        assert self._process is not None
        self._hang_up()
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=30)
        subprocess.run(["cp", "-a", self._data, self._kept], check=True)

    def take_back(self) -> None:
        """End the server, and make its files what they were when they were kept."""
        self.kill()
        subprocess.run(["rm", "-rf", self._data], check=True)
        subprocess.run(["cp", "-a", self._kept, self._data], check=True)

    def refuse_writes(self) -> None:
        """Have sessions only read from now on, as those of a primary do that has been demoted."""
        self._execute("ALTER SYSTEM SET default_transaction_read_only = on")
        self._execute("SELECT pg_reload_conf() \\g /dev/null")

    def promote(self) -> None:
        """Make this standby the primary; return when it takes writes."""
        self._run("pg_ctl", "promote", "-D", str(self._data), "-w")

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
        if self._process is None or self._process.poll() is not None:
            return
        self._hang_up()
        processes = self._processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(timeout=30)
        # A new server does not start beside one of an old server's. Init may take seconds to reap them.
        for process in processes[1:]:
            for pause_s in pauses():
                if _has_ended(process):
                    break
                time.sleep(pause_s)

    def remove(self) -> None:
        """End the server, and what it wrote."""
        self._hang_up()
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self._process.send_signal(signal.SIGQUIT)  # Which waits for nobody, and writes nothing more.
            self._process.wait(timeout=30)
        # shutil takes half a minute for hundreds of databases.
        subprocess.run(["rm", "-rf", str(self._home)], check=False)

    def _hang_up(self) -> None:
        if self._psql is not None:
            self._psql.communicate()
            self._psql = None

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
