"""What the schemas of the tools that the service runs itself have in common."""

from typing import Any

from serve_app.schemas.base import WireModel


class BuiltInTool(WireModel):
    """A tool that the service runs itself."""

    type: str

    @property
    def tool(self) -> str:
        """What the deployment and the scopes of keys call the tool, which may have several types in requests."""
        return self.type

    def to_wire(self) -> dict[str, Any]:
        """Return it as a response echoes it."""
        return self.model_dump(exclude_none=True)
