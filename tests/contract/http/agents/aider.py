"""aider, whose model writes its changes as text."""

from dataclasses import dataclass
from pathlib import Path

from tests.contract.http.agents.places import Agent, Place
from tests.contract.http.agents.tasks import AFTER, BEFORE, FILE, Deed, Results

_QUIET = ("--no-git", "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-pretty")


@dataclass(frozen=True, slots=True)
class Aider(Agent):
    """aider as the guide sets it up."""

    program: Path

    def call(self, deed: Deed, place: Place, results: Results) -> str:
        return f"Here it is.\n\n{FILE}\n```\n<<<<<<< SEARCH\n{BEFORE}\n=======\n{AFTER}\n>>>>>>> REPLACE\n```\n"

    async def run(self, prompt: str, place: Place, shop: str = "") -> str:
        command = (self.program, "--message", prompt, "--yes-always", "--edit-format", "diff", *_QUIET, FILE)
        return await place.run(command, **place.exports("aider"))
