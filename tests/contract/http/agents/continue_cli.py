"""Continue's command line."""

from dataclasses import dataclass
from pathlib import Path

from tests.contract.http.agents.places import Agent, Place
from tests.contract.http.agents.tasks import AFTER, BEFORE, FILE, Call, Deed, Edit, Read, Results, Run


@dataclass(frozen=True, slots=True)
class Continue(Agent):
    """Continue's command line as the guide sets it up. `node` is the program that runs it."""

    programs: Path
    node: Path

    def call(self, deed: Deed, place: Place, results: Results) -> Call:
        path = str(place.work / FILE)
        match deed:
            case Read():
                return "Read", {"filepath": path}
            case Edit():
                return "Edit", {"file_path": path, "old_string": BEFORE, "new_string": AFTER}
            case Run(command):
                return "Bash", {"command": command}
        raise NotImplementedError

    async def run(self, prompt: str, place: Place, shop: str = "") -> str:
        place.write(".continue/config.yaml", place.guide("Continue", "yaml"))
        config = str(place.home / ".continue/config.yaml")
        return await place.run(
            (self.node, self.programs / "cn", "-p", prompt, "--config", config, "--allow", "*"),
            CONTINUE_TELEMETRY_ENABLED="0",
        )
