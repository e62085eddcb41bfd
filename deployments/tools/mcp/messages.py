"""Values about remote MCP servers, without the MCP library."""

from dataclasses import dataclass, field
from typing import Any, Literal

CONNECTION_CLOSED = -32000
"""The error code of MCP's libraries for a failed connection."""


class McpFailure(Exception):
    """A request to a server failed; `message` has the reason, for clients and models."""

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
        """Return the error in the form of a call's item."""
        return {"type": self.kind, "code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server and the headers for it; neither may be stored or logged."""

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
