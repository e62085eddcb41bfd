"""A PostgreSQL server of our own, which may be stopped, killed and started again."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from tempfile import mkdtemp

import psutil

from tests.ports import free_port

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []


def as_other_user() -> list[str]:
    """What goes before a server's command line: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    user = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


class PostgresServer:
    """A server with a folder and a port of its own; `start` begins it, `remove` ends it."""

    def __init__(self) -> None:
        self.port = free_port()
        self._home = Path(mkdtemp(prefix="manta-pg-", dir="/tmp"))
        self._environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self._home)}
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            shutil.chown(self._home, "nobody")
        self._run("initdb", "-D", str(self._data), "-U", "manta", "-A", "trust", "-E", "UTF8", "--no-sync")

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

    def create_database(self) -> str:
        """Return the URL of an empty database."""
        name = f"manta_{time.monotonic_ns()}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "manta", name)
        return f"postgresql+asyncpg://manta@127.0.0.1:{self.port}/{name}"

    def pause(self) -> None:
        """Stop every process of the server where it is: connections stay, and nothing answers."""
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        """Let the server go on."""
        for process in self._processes():
            process.resume()

    def kill(self) -> None:
        """End every process of the server at once, as a machine that loses its power does."""
        assert self._process is not None
        processes = self._processes()
        for process in processes:
            process.kill()
        self._process.wait(timeout=30)
        psutil.wait_procs(processes[1:], timeout=30)  # A new server does not start beside one of an old server's.

    def remove(self) -> None:
        """End the server, and what it wrote."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self._process.send_signal(signal.SIGINT)  # Which waits for nobody who is still connected.
            self._process.wait(timeout=30)
        shutil.rmtree(self._home, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        assert self._process is not None
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def _run(self, program: str, *arguments: str) -> None:
        command = [*as_other_user(), str(PROGRAMS[-1] / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, env=self._environment, cwd=self._home)
