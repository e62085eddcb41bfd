"""What is said of remote MCP servers, in values that need no MCP library."""

from dataclasses import dataclass, field
from typing import Any, Literal

CONNECTION_CLOSED = -32000
"""The code of a connection that came to nothing, as MCP's libraries use it."""


class McpFailure(Exception):
    """A server did not do what it was asked; `message` says why, for callers and models to read."""

    def __init__(
        self,
        message: str,
        code: int = CONNECTION_CLOSED,
        kind: Literal["http_error", "mcp_protocol_error"] = "mcp_protocol_error",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.kind = kind

    def to_wire(self) -> dict[str, Any]:
        """Return the error as the item of a call has it."""
        return {"type": self.kind, "code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and the headers that it wants; neither may be written down anywhere."""

    url: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a server; `annotations` are what the server says of it."""

    name: str
    description: str | None
    input_schema: dict[str, Any]
    annotations: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to: the parts that the server sent, and their text. With `is_error` they tell of a failure."""

    content: list[dict[str, Any]]
    text: str
    is_error: bool
