"""Libraries for agents, each with a program in `tests/contract/more_agents` that gives it the same tools."""

from dataclasses import dataclass
from pathlib import Path

from tests.contract.http.agents.places import Agent, Place
from tests.contract.http.agents.tasks import AFTER, FILE, AskServer, Call, Deed, Delegate, Edit, Read, Results, Run
from tests.contract.http.answers import MODEL, SECRET


@dataclass(frozen=True, slots=True)
class Library(Agent):
    """A program over a library, and which interface of the service it uses."""

    interpreter: str | Path
    program: Path
    interface: str

    def call(self, deed: Deed, place: Place, results: Results) -> Call:
        match deed:
            case Read():
                return "read_file", {"path": FILE}
            case Edit():
                return "write_file", {"path": FILE, "text": AFTER + "\n"}
            case Run(command):
                return "run_command", {"command": command}
            case AskServer(thing):
                return "stock", {"thing": thing}
            case Delegate(prompt):
                return "hire", {"input": prompt}
        raise NotImplementedError

    async def run(self, prompt: str, place: Place, shop: str = "") -> str:
        asked = {"PROMPT": prompt, "INTERFACE": self.interface, "SHOP": shop}
        where = {"ADDRESS": place.address, "API_KEY": SECRET, "MODEL": MODEL}
        return await place.run((self.interpreter, self.program), **where, **asked)
