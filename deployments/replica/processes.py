"""The processes of a replica: they end with it, keep freed memory, and log nothing from C++ libraries.

- vLLM's engine runs in processes of its own, which outlive a killed replica, and keep its memory and locks from the
  next one. No handler runs in a killed process, so `Guard` starts another process, which notices.
- Each step of an engine frees as much memory as it allocates. By default glibc may return it to the kernel, depending
  on the layout of blocks: the same steps caused 700 to 14,000 page faults each, up to a fifth of their time.
- C++ libraries print their input: xgrammar quotes a pattern that it does not support.
"""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

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

_MALLOC_SETTINGS = {  # See mallopt(3); a process reads them when it starts.
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # Larger blocks are mapped one by one. glibc's maximum.
    "MALLOC_TRIM_THRESHOLD_": str(2**30),  # The free memory that is kept at the end of the heap.
}
_STREAMS = ("_ZSt4cout", "_ZSt4cerr", "_ZSt4clog")
_SET_BUFFER = "_ZNSt9basic_iosIcSt11char_traitsIcEE5rdbufEPSt15basic_streambufIcS1_E"  # std::ios::rdbuf(streambuf*)
_OFFSET_OF_IOS = -3 * ctypes.sizeof(ctypes.c_void_p)
"""Where a stream's vtable holds the offset of its `std::ios`."""


class Guard:
    """Ends every process below this one when this one ends, also those that start later."""

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
    """Return when a process started, in the kernel's ticks; with the pid it identifies a process for good."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return None


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Context manager in which started processes keep freed memory; the operator's own settings take precedence."""
    ours = {name: value for name, value in _MALLOC_SETTINGS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def quiet_libraries() -> None:
    """Stop all output of C++ libraries in this process.

    Takes the buffers from the streams of the C++ library. Python and crash traces use the file descriptors themselves.
    """
    library = ctypes.CDLL("libstdc++.so.6")
    set_buffer = library[_SET_BUFFER]
    set_buffer.argtypes, set_buffer.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
    for name in _STREAMS:
        stream = ctypes.addressof(ctypes.c_char.in_dll(library, name))
        table = ctypes.c_size_t.from_address(stream).value
        set_buffer(stream + ctypes.c_ssize_t.from_address(table + _OFFSET_OF_IOS).value, None)
