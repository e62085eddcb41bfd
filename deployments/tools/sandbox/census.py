"""Measures the processes of sandboxes from outside, without trusting anything inside.

The kernel may not list the children of a process, so all processes are read; one reading serves every sandbox.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_FRESH_S = 0.05


@dataclass(frozen=True, slots=True)
class Taken:
    """The resources of the processes below another: ids, number of threads, private memory, CPU time."""

    pids: tuple[int, ...]
    num_threads: int
    memory_bytes: int
    cpu_s: float


class Census:
    """Reads the process table, at most twenty times a second."""

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._children: dict[int, list[int]] = {}
        self._cpu_ticks: dict[int, int] = {}
        self._num_threads: dict[int, int] = {}

    def below(self, pid: int, *, fresh: bool = False) -> Taken:
        """Return the resources of all processes below `pid`, without `pid` itself."""
        if fresh or time.monotonic() - self._read_at > _FRESH_S:
            self._read()
        found: list[int] = []
        waiting = list(self._children.get(pid, ()))
        while waiting:
            one = waiting.pop()
            found.append(one)
            waiting += self._children.get(one, ())
        ticks = sum(self._cpu_ticks[one] for one in found)
        num_threads = sum(self._num_threads[one] for one in found)
        return Taken(tuple(found), num_threads, sum(map(_own_bytes, found)), ticks / _TICKS_PER_S)

    def _read(self) -> None:
        self._children, self._cpu_ticks, self._num_threads = {}, {}, {}
        for pid, fields in _processes():
            if fields[0] == b"Z":  # A zombie.
                continue
            self._children.setdefault(int(fields[1]), []).append(pid)
            self._cpu_ticks[pid] = sum(map(int, fields[11:15]))  # Includes its collected children.
            self._num_threads[pid] = int(fields[17])
        self._read_at = time.monotonic()


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    """Yield each pid with the fields of its `stat`, from the state on."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                yield int(name), file.read().rpartition(b")")[2].split()
        except OSError:
            continue


def any_left(pids: Iterable[int]) -> bool:
    """Return whether one of the processes still exists."""
    return any(os.path.exists(f"/proc/{pid}") for pid in pids)


def num_threads() -> int:
    """Return the number of threads of all users."""
    return sum(int(fields[17]) for _, fields in _processes())


def _own_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return parse_own_bytes(file.read())
    except OSError:
        return 0


def parse_own_bytes(status: bytes) -> int:
    """Return the memory of a process from the content of its `status` file, without mapped files.

    Includes them on kernels that report only a sum, such as gVisor.
    """
    fields = dict(line.split(b":", 1) for line in status.splitlines() if b":" in line)
    names = (b"RssAnon", b"RssShmem") if b"RssAnon" in fields else (b"VmRSS",)
    return sum(int(fields[name].split()[0]) * 1024 for name in names if name in fields)


def used_inodes(pid: int, folder: str, most: int) -> int:
    """Return how many files and folders a process's file system has, up to `most`; 0 if it cannot be read."""
    path = f"/proc/{pid}/root{folder}"
    try:
        about = os.statvfs(path)
        return about.f_files - about.f_ffree if about.f_files else _count(path, most)
    except OSError:
        return 0


def _count(path: str, most: int) -> int:
    """Count the files and folders below a folder, for kernels that keep no count, such as gVisor."""
    found = 1
    for _, folders, files, _ in os.fwalk(path):  # Follows no links, not even new ones.
        found += len(folders) + len(files)
        if found > most:
            break
    return found
