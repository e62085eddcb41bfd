"""Programs run as by `python -c`, forked from a process that has imported most of what they need.

Importing takes nearly all the time of a short program. The process is `python -m THIS MODULE...`.
"""

import asyncio
import importlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
_TIMEOUT_S = 240
"""For a program and, before the first one, all the imports."""


class Ended(NamedTuple):
    """How a program ended: its status is the signal's number below zero if one ended it."""

    status: int
    printed: str
    errors: str


class Forks:
    """The process that programs are forked from."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process, self._directory = process, directory

    async def run(self, code: str, at: Path = ROOT) -> Ended:
        """Run a program in a directory, one at a time."""
        return await asyncio.to_thread(self._run, code, at)

    def _run(self, code: str, at: Path) -> Ended:
        outputs = [self._directory / name for name in ("stdout", "stderr")]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([code, str(at), *map(str, outputs)]), file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], _TIMEOUT_S)[0]:
            raise TimeoutError(f"The program did not end: {code}")
        status = int(self._process.stdout.readline())
        return Ended(status, *(output.read_text() for output in outputs))


@contextmanager
def forks_of(directory: Path, *modules: str) -> Iterator[Forks]:
    """Start a process that imports these modules; what it prints goes through the directory."""
    command = [sys.executable, "-m", __spec__.name, *modules]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            yield Forks(process, directory)
        finally:
            os.killpg(process.pid, 9)


def _next() -> str | None:
    """Return, in a process forked for it, what to run; None in the first one once nothing more is asked for."""
    while line := sys.stdin.readline():
        code, directory, *outputs = json.loads(line)
        if pid := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            continue
        os.chdir(directory)
        for number, path in enumerate([os.devnull, *outputs]):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        return code
    return None


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    if (code := _next()) is not None:
        exec(compile(code, "<string>", "exec", dont_inherit=True), {"__name__": "__main__"})
