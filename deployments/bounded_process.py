"""Runs one of our modules in a process of its own, with bounded time, memory and output.

For code that hostile input may slow down, blow up or break into: readers of documents and web pages, and the compiler
of JSON schemas. The process gets none of the environment, which may hold secrets, and loads nothing from the working
folder. It ends within its bounds even if the process that started it is gone.
"""

import json
import math
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

_ROOT = str(Path(__file__).parents[1])
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from deployments import bounded_process as b; b.enter(*sys.argv[2:])"
)
_MAX_OPEN_FILES = 16
_GRACE_S = 1  # Between the timeout of `run` and the process's own alarm.

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class ProcessFailed(Exception):
    """The process crashed, or exceeded its memory or CPU time."""


class ProcessTimedOut(ProcessFailed):
    """The process took longer than `wall_s`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one process.

    `memory_bytes` is on top of the memory that it has when it sets its bounds. `output_bytes` is the largest file that
    it may write.
    """

    cpu_s: int
    wall_s: float
    memory_bytes: int
    output_bytes: int

    def set(self) -> None:
        """Apply these bounds to the running process; they cannot be lifted."""
        with open("/proc/self/statm", encoding="ascii") as statm:
            used_bytes = int(statm.read().split()[0]) * resource.getpagesize()
        memory_bytes = used_bytes + self.memory_bytes
        signal.alarm(math.ceil(self.wall_s) + _GRACE_S)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (self.cpu_s, self.cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.output_bytes, self.output_bytes))
        resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_OPEN_FILES, _MAX_OPEN_FILES))


def command(module: str, bounds: Bounds | None = None) -> list[str]:
    """Return the command that calls a module's `main`, within bounds unless the module sets its own.

    Start it with `ENVIRONMENT` as its environment.
    """
    arguments = [module] if bounds is None else [module, json.dumps(asdict(bounds))]
    return [sys.executable, "-I", "-c", _CODE, _ROOT, *arguments]


def run(module: str, given: bytes, bounds: Bounds) -> bytes:
    """Return what a module's `main` writes to standard output, with `given` as its standard input. Blocks.

    Raises:
        ProcessTimedOut: it took longer than `bounds.wall_s`.
        ProcessFailed: it ended with an error, or hit a limit.
    """
    # Both ways go through memory rather than pipes, so that neither side waits for the other.
    source, sink = os.memfd_create("source"), os.memfd_create("sink")
    try:
        with os.fdopen(os.dup(source), "wb") as file:
            file.write(given)
        os.lseek(source, 0, os.SEEK_SET)
        process = subprocess.Popen(  # noqa: S603 - nothing of the command comes from outside.
            command(module, bounds), stdin=source, stdout=sink, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        try:
            status = process.wait(bounds.wall_s)
        except subprocess.TimeoutExpired:
            raise ProcessTimedOut(f"{module} took more than {bounds.wall_s:g} s.") from None
        finally:
            process.kill()
            process.wait()
        if status != 0:
            raise ProcessFailed(f"{module} ended with status {status}.")
        os.lseek(sink, 0, os.SEEK_SET)
        with os.fdopen(os.dup(sink), "rb") as file:
            return file.read()
    finally:
        os.close(source)
        os.close(sink)


def enter(module: str, bounds: str = "") -> None:
    """Call a module's `main` in the process that `command` started."""
    if bounds:
        Bounds(**json.loads(bounds)).set()
    import_module(module).main()
