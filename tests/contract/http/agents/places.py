"""Where an agent runs: a home and a folder of its own, set up as the guide says, with no way beyond loopback."""

import asyncio
import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import orjson

from tests.contract.http.agents.tasks import BEFORE, FILE, PLANS, Call, Deed, Plans, Results
from tests.contract.http.answers import MODEL, SECRET
from tests.tools.pages.blocks import ROOT, blocks_in

_GUIDE = "docs/guides/coding-agents.md"
_ELSEWHERE = "http://127.0.0.1:9"
"""Agents ask their makers for news. Nothing listens at the discard port, so they go on without."""


def events_in(output: str) -> list[dict[str, Any]]:
    """Return the events that an agent has printed, a line of JSON each."""
    return [orjson.loads(line) for line in output.splitlines() if line.startswith("{")]


@dataclass(frozen=True, slots=True)
class Place:
    """The home of an agent and, within it, the folder that it works in."""

    home: Path
    address: str

    @property
    def work(self) -> Path:
        return self.home / "work"

    def write(self, path: str, content: str) -> None:
        """Write a file into the home."""
        (self.home / path).parent.mkdir(parents=True, exist_ok=True)
        (self.home / path).write_text(content, encoding="utf-8")

    def guide(self, heading: str, language: str) -> str:
        """Return a block of the guide with this place's address, key and model."""
        text = (ROOT / _GUIDE).read_text(encoding="utf-8")
        section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        code = next(block.code for block in blocks_in(_GUIDE, section) if block.language == language)
        for shown, real in (
            ("http://127.0.0.1:8000", self.address),
            ("qwen/qwen3-8b", MODEL),
            ("sk-manta-...", SECRET),
        ):
            code = code.replace(shown, real)
        return code

    def exports(self, heading: str) -> dict[str, str]:
        """Return the variables that a block of the guide exports."""
        lines = [shlex.split(line) for line in self.guide(heading, "sh").splitlines()]
        words = [word for line in lines if line[:1] == ["export"] for word in line[1:]]
        return dict(word.split("=", 1) for word in words)

    async def run(self, command: Sequence[str | Path], **environment: str) -> str:
        """Run a program in the folder; return what it prints. It ends well, within a minute and a half."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "HTTP_PROXY": _ELSEWHERE,
                "HTTPS_PROXY": _ELSEWHERE,
                "NO_PROXY": "127.0.0.1,localhost",
                "MANTA_API_KEY": SECRET,
                **environment,
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), 90)
        finally:
            _end(process.pid)
        assert process.returncode == 0, output.decode()[-4000:] + errors.decode()[-4000:]
        return output.decode()


def _end(leader: int) -> None:
    """End what a program has left running; it leads its processes as a group."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def prepare(home: Path, address: str) -> Place:
    """Return a place with the file in its folder."""
    place = Place(home, address)
    place.write(f"work/{FILE}", BEFORE + "\n")
    return place


class Agent:
    """A client: how it is set up and asked, and how its tools are called.

    A deed that is not among its cases is not asked of it. Its `plans` are what its model does.
    """

    plans: ClassVar[Plans] = PLANS

    def call(self, deed: Deed, place: Place, results: Results) -> Call | str:
        """Return the call of a tool that does a deed, or the text of an answer that does."""
        raise NotImplementedError

    async def run(self, prompt: str, place: Place, shop: str = "") -> str:
        """Run the client until it has done what a prompt says; return what it says then.

        `shop` is the URL of an MCP server that it is connected to.
        """
        raise NotImplementedError
