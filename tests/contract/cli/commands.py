"""`manta` in a process of its own, forked from one that has imported it."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from serve_app.cli import main
from tests.forks import FORKS, import_first

import_first(__name__)


class Command:
    """A command that runs; what it prints goes into files of the folder."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str) -> None:
        self._outputs = folder / "stdout", folder / "stderr"
        for path in self._outputs:
            path.touch()
        self._process = FORKS.Process(target=_run, args=(environment, arguments, self._outputs))
        self._process.start()

    @property
    def status(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.exitcode

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        return self._outputs[0].read_text()

    async def stop(self, number: int) -> str:
        """Send it a signal; return its error output once it has ended."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)
        await asyncio.to_thread(self._process.join, 60)
        assert self.status is not None, "it has not ended"
        return self._outputs[1].read_text()

    def remove(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.join()


def _run(environment: dict[str, str], arguments: Sequence[str], outputs: Sequence[Path]) -> None:
    os.environ.update(environment)
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.argv = ["manta", *arguments]
    main()
