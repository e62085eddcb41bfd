"""What the schemas of the tools that the service runs itself have in common."""

from typing import Any, ClassVar

from deployments.operations import Operation
from serve_app.schemas.base import WireModel


class BuiltInTool(WireModel):
    """A tool that the service runs itself."""

    tool: ClassVar[Operation]
    """What the configuration and the scopes of keys call it. Requests may know it by several types."""

    type: str

    def to_wire(self) -> dict[str, Any]:
        """Return it as a response echoes it."""
        return self.model_dump(exclude_none=True)
