"""Values about remote MCP servers that need no MCP library."""

from dataclasses import dataclass, field
from typing import Any, Literal

CONNECTION_CLOSED = -32000
"""The code of a connection that failed, as MCP's libraries use it."""


class McpFailure(Exception):
    """A request to a server failed; `message` says why, for clients and models to read."""

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
    """The address of a server and the headers that it needs; neither may be stored or logged."""

    url: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a server, with the server's `annotations`."""

    name: str
    description: str | None
    input_schema: dict[str, Any]
    annotations: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call: the parts that the server sent, and their text; with `is_error` they describe a failure."""

    content: list[dict[str, Any]]
    text: str
    is_error: bool
