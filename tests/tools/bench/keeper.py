"""Runs a command as the parent of everything that it leaves behind: `python -m tests.tools.bench.keeper COMMAND...`.

On SIGTERM or SIGINT, or when the process that started it dies, it interrupts the command, and after a grace kills the
rest.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

from tests.tools.bench.processes import read_tree

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 20


def main(command: list[str]) -> int:
    """Run the command until it ends or a signal comes; returns its exit status."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    child = subprocess.Popen(command)

    def interrupt(signum: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.alarm(GRACE_S)
        child.send_signal(signal.SIGINT)

    signal.signal(signal.SIGALRM, lambda signum, frame: child.kill())
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    status = 0
    pid = 0
    while pid != child.pid:  # Orphans come by here too: waiting for them keeps their processor time.
        pid, status = os.waitpid(-1, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    end_descendants()
    return abs(child.returncode)


def end_descendants() -> None:
    """Ask everything below this process to end, then make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for stat in read_tree(os.getpid())[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stat.pid, number)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # Nothing is left.
                return
            if pid == 0:
                time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
