"""Ends the engine's processes when the replica ends, also when it is killed.

vLLM's engine runs in processes of its own, which outlive a replica that is killed and keep its memory and locks from
the next one. No handler runs in a killed process, so another process has to notice.
"""

import os
import subprocess
import sys
import threading
import time

import psutil

_GUARD = """
import os, signal, sys, time
lines = sys.stdin.read().split("\\n")  # Ends when the replica's end of the pipe closes, whatever the reason.
def started(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return None
known = [line.split() for line in lines if line]
for name, grace_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 0.0)):
    left = [int(pid) for pid, start in known if started(int(pid)) == start]
    for pid in left:
        try:
            os.kill(pid, name)
        except OSError:
            pass
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(started(int(pid)) == start for pid, start in known):
        time.sleep(0.05)
"""

INTERVAL_S = 5.0


class Guard:
    """Guards every process below this one, also those that start later."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program, no input from outside.
            [sys.executable, "-S", "-E", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._guarded: set[int] = {self._process.pid}
        threading.Thread(target=self._keep_adding, daemon=True, name="guard").start()

    def add_children(self) -> None:
        """Guard the processes that run now, too."""
        assert self._process.stdin is not None
        for child in psutil.Process(os.getpid()).children(recursive=True):
            if child.pid not in self._guarded and (start := _start_of(child.pid)) is not None:
                self._guarded.add(child.pid)
                self._process.stdin.write(f"{child.pid} {start}\n".encode())
        self._process.stdin.flush()

    def _keep_adding(self) -> None:
        while self._process.poll() is None:
            time.sleep(INTERVAL_S)
            try:
                self.add_children()
            except (OSError, ValueError, psutil.Error):
                return


def _start_of(pid: int) -> str | None:
    """Return when a process started, in the kernel's ticks: with the pid it names a process for good."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return None
