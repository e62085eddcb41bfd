"""Dice as a tool within a response."""

from random import SystemRandom

from deployments.operations import Operation
from deployments.tools.config import DiceConfig
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.tools.contract import SendEvent, ToolAnswer, ToolContext, ToolInUse, ToolResources
from serve_app.schemas.responses.dice import DiceTool


class Dice:
    """The dice of this deployment."""

    type = Operation.DICE

    def __init__(self, num_dice: int) -> None:
        self._num_dice = num_dice

    async def open(self, tool: DiceTool, context: ToolContext) -> "DiceInUse":
        """Return the dice for one response."""
        return DiceInUse(self._num_dice, tool.sides)


class DiceInUse(ToolInUse):
    """The dice within one response."""

    def __init__(self, num_dice: int, sides: int) -> None:
        self._num_dice = num_dice
        self._sides = sides

    def functions(self) -> list[Item]:
        """Return the function that the model is offered."""
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        return [{"type": "function", "function": {"name": "dice", "description": "Throws dice.", "parameters": schema}}]

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a throw."""
        return {"id": new_id("dice"), "type": "dice_call", "status": "in_progress"}

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Throw."""
        eyes = [SystemRandom().randint(1, self._sides) for _ in range(self._num_dice)]
        send("response.dice_call.rolling")
        return ToolAnswer({**item, "status": "completed", "eyes": eyes}, str(eyes))

    def cite(self, text: str) -> list[Item]:
        """Return nothing: there are no sources."""
        return []

    async def close(self) -> None:
        """Let go of nothing."""


def create_built_in(config: DiceConfig, resources: ToolResources) -> Dice:
    """Return the dice of a configuration."""
    return Dice(config.num_dice)
