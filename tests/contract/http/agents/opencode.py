"""opencode, over each of the three interfaces."""

from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.contract.http.agents.places import Agent, Place, events_in
from tests.contract.http.agents.tasks import (
    AFTER,
    BEFORE,
    FILE,
    AskServer,
    Call,
    Deed,
    Delegate,
    Edit,
    Read,
    Results,
    Run,
)

_QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}


@dataclass(frozen=True, slots=True)
class OpenCode(Agent):
    """opencode with the package of a provider."""

    programs: Path
    package: str = "@ai-sdk/openai-compatible"

    def call(self, deed: Deed, place: Place, results: Results) -> Call:
        path = str(place.work / FILE)
        match deed:
            case Read():
                return "read", {"filePath": path}
            case Edit():
                return "edit", {"filePath": path, "oldString": BEFORE, "newString": AFTER}
            case Run(command):
                return "bash", {"command": command, "description": "Show the file."}
            case AskServer(thing):
                return "shop_stock", {"thing": thing}
            case Delegate(prompt):
                return "task", {"description": "Look.", "prompt": prompt, "subagent_type": "general"}

    async def run(self, prompt: str, place: Place, shop: str = "") -> str:
        config = orjson.loads(place.guide("opencode", "json"))
        (provider,) = config["provider"].values()
        provider["npm"] = self.package
        if shop:
            config["mcp"] = {"shop": {"type": "remote", "url": shop, "enabled": True}}
        place.write("work/opencode.json", orjson.dumps(config).decode())
        output = await place.run(
            (self.programs.parent / "opencode-linux-x64/bin/opencode", "run", "--format", "json", prompt), **_QUIET
        )
        events = events_in(output)
        return str([event["part"]["text"] for event in events if event["type"] == "text"][-1])
