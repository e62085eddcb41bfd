"""A server as a tree of processes: started, measured, and ended with nothing left behind.

The tree hangs below a keeper, a small process that the kernel makes the parent of every orphan underneath it. So
daemons stay countable, and ending the keeper ends them all. Processor time is that of every process that lives in
the tree plus what the dead ones left to their parents, so it loses nothing when a process ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """A line of /proc/PID/stat; `cpu_s` is the processor time of the process and of its dead children."""

    pid: int
    name: str
    parent: int
    cpu_s: float


def read_stat(pid: int) -> Stat | None:
    """Return a process's figures, None if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Stat(pid, name, int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_S)


def read_tree(root: int) -> list[Stat]:
    """Return the figures of a process and of everything below it, the root first."""
    stats = [stat for entry in os.listdir(PROC) if entry.isdigit() and (stat := read_stat(int(entry)))]
    children: dict[int, list[Stat]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat)
    tree = [stat for stat in stats if stat.pid == root]
    for stat in tree:  # Grows while it is walked.
        tree.extend(children.get(stat.pid, ()))
    return tree


def machine_cpu_s() -> float:
    """Return the processor seconds that this machine has spent since it started, those that its host withheld too."""
    user, nice, system, _, _, interrupts, soft_interrupts, withheld = _machine_ticks()
    return (user + nice + system + interrupts + soft_interrupts + withheld) / TICKS_PER_S


def withheld_ticks() -> int:
    """Return how much processor time this machine's host has withheld from it since it started."""
    return _machine_ticks()[7]


def _machine_ticks() -> list[int]:
    fields = (PROC / "stat").read_text().partition("\n")[0].split()[1:]
    return [int(field) for field in fields[:8]]


def read_title(stat: Stat) -> str:
    """Return what a process calls itself: its own title where it has set one, else its program or Python module."""
    try:
        words = (PROC / str(stat.pid) / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return stat.name
    if len(words) == 1:  # Set by the process; Ray puts the method that runs behind a dot.
        return words[0].partition(".")[0].strip()[:60] or stat.name
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return next((Path(word).name for word in words if word.endswith(".py")), stat.name)


def read_kilobytes(pid: int, file: str, key: str) -> int:
    """Return a field, in kB, of one of a process's memory files; 0 if the process is gone."""
    try:
        lines = (PROC / str(pid) / file).read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def memory_mb(root: int) -> tuple[float, float]:
    """Return a tree's memory now, shared pages counted once (PSS), and the sum of its processes' peaks (RSS), in MB."""
    pids = [stat.pid for stat in read_tree(root)]
    pss = sum(read_kilobytes(pid, "smaps_rollup", "Pss") for pid in pids)
    peak = sum(read_kilobytes(pid, "status", "VmHWM") for pid in pids)
    return pss / 1024, peak / 1024


class ServerTree:
    """A running server: its keeper and everything below it."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path, cwd: Path) -> None:
        """Start the command; its output goes to the end of `log`."""
        self.log = log
        self._output: IO[bytes] = log.open("ab")
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.tools.bench.keeper", *command],
            env=dict(environment),
            cwd=cwd,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The keeper's process id."""
        return self._keeper.pid

    @property
    def has_ended(self) -> bool:
        """True once the command has ended."""
        return self._keeper.poll() is not None

    def cpu_s(self) -> float:
        """Return the processor seconds that the tree has taken so far."""
        return sum(stat.cpu_s for stat in read_tree(self.pid))

    def cpu_by_process(self) -> dict[int, tuple[str, float]]:
        """Return each process's title and the processor seconds it has taken so far, under its id."""
        return {stat.pid: (read_title(stat), stat.cpu_s) for stat in read_tree(self.pid)[1:]}

    def pause(self) -> None:
        """Halt every process of the server, so that it takes nothing from another one that is being measured."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a halted server go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        for stat in read_tree(self.pid)[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stat.pid, number)

    def stop(self, timeout_s: float = 60) -> None:
        """End the server, gently first; returns when nothing of it is left."""
        if not self.has_ended:
            self.resume()
            self._keeper.send_signal(signal.SIGTERM)
            self._keeper.wait(timeout_s)
        self._output.close()

    def last_lines(self, num: int = 20) -> str:
        """Return the end of the server's output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-num:])
