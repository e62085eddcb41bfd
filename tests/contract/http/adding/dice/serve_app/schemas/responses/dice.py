"""Dice as a tool of a response, and their throws as items."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.operations import Operation
from serve_app.schemas.responses.built_in_tool import BuiltInItem, BuiltInTool, ItemId, Shown


class DiceTool(BuiltInTool):
    """Dice, all with as many sides."""

    tool = Operation.DICE
    type: Literal["dice"]
    sides: Annotated[int, Field(ge=2, le=100)] = 6


class DiceCallItem(BuiltInItem):
    """A throw."""

    id_prefix = "dice"
    type: Literal["dice_call"]
    id: ItemId
    eyes: Annotated[list[int], Field(max_length=64)] | None = None
    status: Literal["in_progress", "completed", "incomplete", "failed"] | None = None

    @classmethod
    def show(cls, item: Mapping[str, Any]) -> Shown:
        """Return the throw."""
        return "dice", "{}", str(item.get("eyes") or "[not kept]")
