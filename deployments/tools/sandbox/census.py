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
    """The use of the processes below one: their ids, number of threads, private memory, and CPU time."""

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
        """Return the use of all processes below `pid`, without `pid` itself."""
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
            if fields[0] == b"Z":  # It has ended; only its parent has not collected it.
                continue
            self._children.setdefault(int(fields[1]), []).append(pid)
            self._cpu_ticks[pid] = sum(map(int, fields[11:15]))  # With that of the children it has waited for.
            self._num_threads[pid] = int(fields[17])
        self._read_at = time.monotonic()


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    """Yield each process with the fields of its `stat`, from the state on."""
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
    """Return the memory of a process."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return parse_own_bytes(file.read())
    except OSError:
        return 0


def parse_own_bytes(status: bytes) -> int:
    """Return the memory of a process without mapped files; with them where the kernel, as gVisor, reports only a sum.

    `status` is the content of the process's `status` file.
    """
    fields = dict(line.split(b":", 1) for line in status.splitlines() if b":" in line)
    names = (b"RssAnon", b"RssShmem") if b"RssAnon" in fields else (b"VmRSS",)
    return sum(int(fields[name].split()[0]) * 1024 for name in names if name in fields)


def used_inodes(pid: int, folder: str, most: int) -> int:
    """Return the number of files and folders in a file system that a process sees; 0 if it cannot be read.

    Those beyond `most` may be left out.
    """
    path = f"/proc/{pid}/root{folder}"
    try:
        about = os.statvfs(path)
        return about.f_files - about.f_ffree if about.f_files else _count(path, most)
    except OSError:
        return 0


def _count(path: str, most: int) -> int:
    """Count the files and folders below a folder, where the kernel, as gVisor, keeps no count."""
    found = 1
    for _, folders, files, _ in os.fwalk(path):  # It follows no link, also not one that is put there meanwhile.
        found += len(folders) + len(files)
        if found > most:
            break
    return found
