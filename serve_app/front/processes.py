"""The processes of a front: started, found again by a supervisor that was started anew, and ended.

None of the HAProxy processes ends with the supervisor. Each writes down its process id, so that the next one finds it.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from serve_app.front.addresses import Address
from serve_app.front.answers import write_answers
from serve_app.front.files import FileMarks, write_private
from serve_app.front.rendering import NO_SPLICING, render_config
from serve_app.front.runtime import Runtime, RuntimeFailed
from serve_app.front.settings import FrontSettings
from serve_app.front.standing import Standing, load_standing
from serve_app.front.table import fresh_servers

logger = logging.getLogger(__name__)

_MAX_HANGS = 5
"""A process that has not answered so often in a row hangs. One that is to take over has as long to answer."""


class Restarts:
    """When a process that has ended may start anew: at once, unless it did not live for `min_life_s`."""

    def __init__(self, min_life_s: float) -> None:
        self._min_life_s = min_life_s
        self._started_at = -min_life_s

    def is_due(self) -> bool:
        """Return whether it may start now."""
        return time.monotonic() - self._started_at >= self._min_life_s

    def note_start(self) -> None:
        """Count from now."""
        self._started_at = time.monotonic()


class HaproxyProcess:
    """The HAProxy process number `number` of a front, started by this process or by one before it."""

    def __init__(self, settings: FrontSettings, number: int, binary: str) -> None:
        self._settings = settings
        self._number = number
        self._binary = binary
        self._timings = settings.timings
        self._runtime = Runtime(settings.socket_path(number), self._timings.runtime_s)
        self._config_path = settings.run_dir / f"haproxy-{number}.cfg"
        self._pid_path = settings.run_dir / f"haproxy-{number}.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._restarts = Restarts(self._timings.watch_s)
        self._pid = 0
        self._started = ""
        self._checked_at = 0.0
        self._num_hangs = 0
        self._believed = FileMarks([path for _, path in settings.believed])

    @property
    def is_living(self) -> bool:
        """The process is there."""
        if self._child is not None and self._child.poll() is not None:
            return False
        return bool(self._pid) and _start_of(self._pid) == self._started

    def open(self) -> None:
        """Take over the process that runs already, replace it where its configuration is another, or start one."""
        self._believed.have_changed()
        found = self._read_pid()
        if found is None:
            self.start()
        elif found == self._digest():
            logger.info("HAProxy %d goes on as process %d.", self._number, self._pid)
        else:
            self._replace()

    def keep(self) -> None:
        """Start the process anew where it has ended, or hangs."""
        if not self.is_living:
            if self._restarts.is_due():
                logger.warning("HAProxy %d has ended, and is started anew.", self._number)
                self.start()
        elif time.monotonic() - self._checked_at >= self._timings.watch_s:
            self._checked_at = time.monotonic()
            self._num_hangs = 0 if self._answers() else self._num_hangs + 1
            if self._believed.have_changed() and not self._num_hangs:
                self._replace()
            if self._num_hangs >= _MAX_HANGS:
                logger.warning("HAProxy %d does not answer any more, and is killed.", self._number)
                self.send(signal.SIGKILL)
                self._num_hangs = 0

    def start(self, *arguments: str) -> None:
        """Start the process, with the table as it was known last."""
        self._restarts.note_start()
        now = time.time()
        fresh_s = self._timings.fresh_s
        servers = fresh_servers(self._settings.table_path, now, fresh_s)
        standing = load_standing(self._settings.standing_path, now, fresh_s)
        write_private(self._config_path, self._render(servers, standing))
        command = [self._binary, NO_SPLICING, "-db", "-f", str(self._config_path), *arguments]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
        self._pid, self._started = self._child.pid, _start_of(self._child.pid)
        noted = {"pid": self._pid, "started": self._started, "digest": self._digest()}
        write_private(self._pid_path, json.dumps(noted))

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if it is there."""
        if self.is_living:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def forget(self) -> None:
        """Remove what says that the process runs; for one that was ended on purpose."""
        self._pid_path.unlink(missing_ok=True)
        self._settings.socket_path(self._number).unlink(missing_ok=True)

    def _replace(self) -> None:
        """Start a process that takes the port over from the one that runs, which ends after its last stream."""
        logger.info("HAProxy %d is replaced: its configuration is another one.", self._number)
        self.start("-x", str(self._settings.socket_path(self._number)), "-sf", str(self._pid))
        deadline = time.monotonic() + _MAX_HANGS * self._timings.watch_s
        while self.is_living and not self._answers() and time.monotonic() < deadline:
            time.sleep(self._timings.poll_s)

    def _answers(self) -> bool:
        try:
            return self._runtime.pid() == self._pid
        except RuntimeFailed:
            return False

    def _read_pid(self) -> str | None:
        """Return the digest of the configuration of the process that runs; None where none does."""
        try:
            noted = json.loads(self._pid_path.read_text())
            self._pid, self._started, digest = int(noted["pid"]), str(noted["started"]), str(noted["digest"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return digest if self.is_living and self._answers() else None

    def _render(self, servers: list[tuple[Address, bool]], standing: Standing) -> str:
        answers = write_answers(self._settings.run_dir, self._settings.receive_timeout_s)
        return render_config(self._settings, self._number, answers, servers, standing)

    def _digest(self) -> str:
        believed = "".join(path.read_text() for _, path in self._settings.believed)
        return sha256((self._binary + self._render([], Standing()) + believed).encode()).hexdigest()


class AgentProcess:
    """The agent of a front, a child of this process that ends with it."""

    def __init__(self, settings: FrontSettings, settings_path: Path) -> None:
        self._command = [sys.executable, "-m", "serve_app.front.agent", str(settings_path), str(os.getpid())]
        self._child: subprocess.Popen[bytes] | None = None
        self._restarts = Restarts(settings.timings.watch_s)

    def keep(self) -> None:
        """Start the agent where it does not run."""
        if (self._child is None or self._child.poll() is not None) and self._restarts.is_due():
            self._restarts.note_start()
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)  # noqa: S603 - Our own.

    def end(self) -> None:
        """End the agent."""
        if self._child is not None:
            self._child.terminate()
            self._child.wait()


def _start_of(pid: int) -> str:
    """Return when a process started, in the kernel's ticks since boot; "" where there is none, or only its remains."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]
