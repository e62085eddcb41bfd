"""The front's supervisor: keeps two HAProxy processes on one port, and the agent.

`manta front` and `manta serve` start it (`python -m serve_app.front.supervisor SETTINGS`). It does nothing but start
what has ended, so that there is little that could end it. When it is killed, the HAProxy processes go on, and the next
supervisor takes them over.
"""

import fcntl
import logging
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from serve_app.front.binary import find_haproxy
from serve_app.front.processes import AgentProcess, HaproxyProcess
from serve_app.front.settings import NUM_PROXIES, FrontSettings, load_settings

_MAX_OPEN_FILES = 131_072
_PRIORITY = -10


class Supervisor:
    """One front. `stop_signals` collects the signals that ask it to end."""

    def __init__(self, settings: FrontSettings, settings_path: Path) -> None:
        binary = find_haproxy()
        self._settings = settings
        self._proxies = [HaproxyProcess(settings, number, binary) for number in range(NUM_PROXIES)]
        self._agent = AgentProcess(settings, settings_path)
        self.stop_signals: list[int] = []

    def run(self) -> None:
        """Keep the front until a signal comes: SIGTERM lets running requests end, SIGINT and a second one do not."""
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
    """Run the front whose settings are in a file."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s front: %(message)s", stream=sys.stderr)
    _allow_open_files()
    _go_first()
    settings = load_settings(path)
    lock = (settings.run_dir / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Until this process is gone, however it ends.
    except OSError:
        sys.exit(f"Another front runs with the files in {settings.run_dir}.")
    supervisor = Supervisor(settings, path)

    def note(number: int, frame: FrameType | None) -> None:
        supervisor.stop_signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, note)
    supervisor.run()


def _allow_open_files() -> None:
    """Let HAProxy have as many connections as this user may, within reason: each takes two files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _go_first() -> None:
    """Let the front, which computes little, go before the models on its machine, if this user may."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0), _PRIORITY))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
