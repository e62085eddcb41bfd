"""The base classes of the service's own tools and their items."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from deployments.operations import Operation
from serve_app.schemas.base import WireModel

RESULTS_NOT_KEPT = "[What was found was not kept.]"
ItemId = Annotated[str, Field(min_length=1, max_length=128, description="The item's id, as an answer has it.")]
Shown = tuple[str, str, str]
"""The name of a function, its arguments as JSON, and its output."""


class BuiltInTool(WireModel):
    """A tool that the service runs itself."""

    tool: ClassVar[Operation]
    """Its name in the configuration and in scopes. Requests may use several types for it."""

    is_chosen_by_type: ClassVar[bool] = True
    """Whether `tool_choice` and `allowed_tools` name it by its type alone."""

    type: str

    def to_wire(self) -> dict[str, Any]:
        """Return the tool as a response echoes it."""
        return self.model_dump(exclude_none=True)


class BuiltInItem(WireModel):
    """An item of one of the service's tools, as answers contain it and clients send it back."""

    id_prefix: ClassVar[str]
    written: ClassVar[tuple[str, str] | None] = None
    """For calls that are shown while the model writes them: the event's name without `.delta`, and the field."""

    type: str

    @classmethod
    def show(cls, item: Mapping[str, Any]) -> Shown | None:
        """Return an item that a client sent as a call for the model, None to leave it out.

        Of items that are stored here, the model's own call is known.
        """
        return None
