"""Codex, over HTTP or WebSocket, which compacts by itself or has the service do it."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import orjson

from tests.contract.http.agents.places import Agent, Place, events_in
from tests.contract.http.agents.tasks import (
    AFTER,
    FILE,
    HIRE,
    PLANS,
    AskServer,
    Call,
    Deed,
    Delegate,
    Edit,
    Plans,
    Read,
    Results,
    Run,
    Wait,
)

_SHOP = """
[mcp_servers.shop]
url = "{url}"
default_tools_approval_mode = "approve"
"""


@dataclass(frozen=True, slots=True)
class Codex(Agent):
    """Codex with more `settings` than the guide has, another name of the provider, and a `feature` that is off."""

    plans: ClassVar[Plans] = {**PLANS, HIRE: (*PLANS[HIRE], Wait())}

    programs: Path
    sockets: bool = True
    settings: str = ""
    name: str = "Manta"
    feature: str = ""

    def call(self, deed: Deed, place: Place, results: Results) -> Call:
        match deed:
            case Read():
                return "exec_command", {"cmd": f"cat {FILE}"}
            case Edit():
                return "exec_command", {"cmd": f"echo '{AFTER}' > {FILE}"}
            case Run(command):
                return "exec_command", {"cmd": command}
            case AskServer(thing):
                return "mcp__shop__stock", {"thing": thing}
            case Delegate(prompt) if self.feature == "multi_agent_v2":
                return "collaboration__spawn_agent", {"task_name": "look", "message": prompt}
            case Wait() if self.feature == "multi_agent_v2":
                return "collaboration__wait_agent", {}
            case Delegate(prompt):
                return "multi_agent_v1__spawn_agent", {"message": prompt}
            case Wait():
                return "multi_agent_v1__wait_agent", {"targets": [orjson.loads(results[-1])["agent_id"]]}

    async def run(self, prompt: str, place: Place, shop: str = "") -> str:
        config = self.settings + place.guide("Codex", "toml") + (_SHOP.format(url=shop) if shop else "")
        config = config.replace('name = "Manta"', f'name = "{self.name}"')
        if not self.sockets:
            config = config.replace("supports_websockets = true", "supports_websockets = false")
        place.write(".codex/config.toml", config)
        enabled = ("--enable", self.feature) if self.feature else ()
        command = ("exec", *enabled, "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json", prompt)
        output = await place.run((self.programs / "codex", *command))
        events = events_in(output)
        assert events[-1]["type"] == "turn.completed", events
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return str(items[-1]["text"])
