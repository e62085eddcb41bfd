"""Remote MCP servers in requests: the tool, the choice of it, and its items.

The values of `headers` and `authorization`, and the part of `server_url` after the host, may be secrets. They are
neither shown nor stored, but a background response keeps the path of `server_url`, sealed, while it runs.
"""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, Tag, model_validator

from deployments.operations import Operation
from serve_app.schemas.base import Refused, WireModel, invalid, refusal
from serve_app.schemas.responses.built_in_tool import BuiltInItem, BuiltInTool

MAX_SERVERS = 16
MAX_TOOL_NAMES = 512
MAX_TOOL_NAME_CHARS = 256
MAX_LISTED_TOOLS = 1024
_REDACTED = "<redacted>"

ServerLabel = Annotated[
    str, Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z][a-zA-Z0-9_-]*$", description="The name of the server.")
]
ToolName = Annotated[str, Field(min_length=1, max_length=MAX_TOOL_NAME_CHARS)]
ToolNames = Annotated[list[ToolName], Field(fail_fast=True, max_length=MAX_TOOL_NAMES)]
Identifier = Annotated[str, Field(min_length=1, max_length=128, description="The item's id, as an answer has it.")]


MAX_HEADERS = 64
MAX_HEADER_CHARS = 16_384
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NOT_THEIRS = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return headers that can be sent; errors never contain a value."""
    if len(headers) > MAX_HEADERS:
        raise refusal("object_above_max_properties", f"Invalid '{{param}}': expected at most {MAX_HEADERS} headers.")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _NOT_THEIRS:
            raise invalid("Invalid key in '{param}': one of them is not the name of a header to be sent.")
        if len(value) > MAX_HEADER_CHARS or not _HEADER_VALUE.fullmatch(value):
            raise invalid("Invalid value in '{param}': it cannot be sent as a header.", f".{name}")
    return headers


def _check_authorization(token: str) -> str:
    if len(token) > MAX_HEADER_CHARS or not _HEADER_VALUE.fullmatch(token):
        raise invalid("Invalid '{param}': it cannot be sent as a header.")
    return token


ServerUrl = Annotated[str, Field(min_length=1, max_length=4096)]
Authorization = Annotated[str, AfterValidator(_check_authorization), Field(min_length=1)]
Headers = Annotated[dict[str, str], AfterValidator(_check_headers)]


class McpToolFilter(WireModel):
    """Some of a server's tools, by name and by whether they only read.

    Args:
        tool_names: the names of the tools.
        read_only: only tools that say that they change nothing if true, only others if false.
    """

    tool_names: ToolNames | None = None
    read_only: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the filter has no condition."""
        return self.tool_names is None and self.read_only is None

    def matches(self, name: str, *, is_read_only: bool) -> bool:
        """Return whether the filter includes a tool."""
        if self.tool_names is not None and name not in self.tool_names:
            return False
        return self.read_only is None or self.read_only == is_read_only


class McpApprovalFilter(WireModel):
    """Which tools always need the client's approval, and which never do.

    Args:
        always: tools whose calls always need approval.
        never: tools whose calls never need approval.
    """

    always: McpToolFilter | None = None
    never: McpToolFilter | None = None


class McpTool(BuiltInTool):
    """The tools of a server that speaks the Model Context Protocol over streamable HTTP.

    Args:
        server_label: a name for the server, unique in the request.
        server_url: the server's address. The operator allows addresses.
        server_description: what the server offers, for the model.
        authorization: an access token, sent as a bearer token. It is never stored.
        headers: headers of every request to the server. They are never stored.
        allowed_tools: the tools that the model may call. Left out, all of the server.
        require_approval: which calls need the client's approval: `always` (the default), `never`, or a filter.
        allowed_callers: accepted for compatibility; has no effect.
        defer_loading: accepted for compatibility; has no effect.
    """

    tool = Operation.MCP
    is_chosen_by_type = False  # By its server.
    type: Literal["mcp"]
    server_label: ServerLabel
    server_url: ServerUrl | None = Field(default=None, repr=False)
    server_description: Annotated[str, Field(max_length=1024)] | None = None
    authorization: Authorization | None = Field(default=None, repr=False)
    headers: Headers | None = Field(default=None, repr=False)
    allowed_tools: Annotated[ToolNames, Tag("?array of strings")] | Annotated[McpToolFilter, Tag("?object")] | None = (
        None
    )
    require_approval: (
        Annotated[Literal["always", "never"], Tag("?string")] | Annotated[McpApprovalFilter, Tag("?object")] | None
    ) = None
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    defer_loading: bool | None = None
    connector_id: Refused = None
    tunnel_id: Refused = None

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        for name in ("connector_id", "tunnel_id"):
            if getattr(self, name) is not None:
                raise refusal(
                    "unsupported_parameter",
                    "Unsupported parameter: '{param}' is not supported by this service. Name the server by its "
                    "'server_url'.",
                    f".{name}",
                )
        if self.server_url is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", ".server_url")
        if self.authorization is not None and any(name.lower() == "authorization" for name in self.headers or ()):
            raise refusal(
                "mutually_exclusive_parameters",
                "Mutually exclusive parameters: '{param}' and the header 'Authorization'. Send only one of them.",
                ".authorization",
            )
        return self

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers of every request to the server."""
        token = {} if self.authorization is None else {"Authorization": f"Bearer {self.authorization}"}
        return {**(self.headers or {}), **token}

    def is_allowed(self, name: str, *, is_read_only: bool) -> bool:
        """Return whether the model may call a tool of the server."""
        match self.allowed_tools:
            case None:
                return True
            case McpToolFilter() as wanted:
                return wanted.matches(name, is_read_only=is_read_only)
            case names:
                return name in names

    def needs_approval(self, name: str, *, is_read_only: bool) -> bool:
        """Return whether the client must approve each call of a tool, as it must where no filter names the tool."""
        match self.require_approval:
            case McpApprovalFilter(always=always, never=never):
                if always is not None and not always.is_empty and always.matches(name, is_read_only=is_read_only):
                    return True
                return never is None or never.is_empty or not never.matches(name, is_read_only=is_read_only)
            case setting:
                return setting != "never"

    def to_wire(self) -> dict[str, Any]:
        """Return the tool as a response echoes it."""
        names = {"type", "server_label", "server_description", "allowed_tools", "require_approval"}
        unsaid = {"server_description": None, "allowed_tools": None, "require_approval": "always", "headers": None}
        shown = self.model_dump(include=names, exclude_none=True)
        return {**unsaid, **shown, "server_url": redacted(self.server_url or "")}


def redacted(url: str) -> str:
    """Return a URL without the part after its host, which may contain a secret."""
    parts = urlsplit(url)
    has_more = parts.path not in ("", "/") or parts.query or parts.fragment
    return f"{parts.scheme}://{parts.netloc}/" + (_REDACTED if has_more else "")


def without_secrets(body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a valid body without the secrets of MCP servers, and whether it had any.

    The path of a server's URL stays: without it the server could not be called again.
    """
    tools = body.get("tools") or []
    kept = [_without_secrets(tool) for tool in tools]
    return ({**body, "tools": kept} if tools else body), kept != tools


def _without_secrets(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "mcp":
        return tool
    kept = {name: value for name, value in tool.items() if name not in ("headers", "authorization") or not value}
    return {**kept, "server_url": tool["server_url"].partition("?")[0]}


class McpChoice(WireModel):
    """The model must call this tool of a server, or one of its tools.

    Args:
        name: the tool to call. Left out, one of the server's.
    """

    type: Literal["mcp"]
    server_label: ServerLabel
    name: ToolName | None = None


class AllowedMcp(WireModel):
    """A server whose tools may be called, or one of them; clients may send its whole definition again.

    Args:
        name: the tool that may be called. Left out, all of the server's.
    """

    model_config = ConfigDict(extra="ignore")

    type: Literal["mcp"]
    server_label: ServerLabel
    name: ToolName | None = None


class McpListedTool(WireModel):
    """A listed tool of a server.

    Args:
        name: the tool's name.
        description: what the tool does.
        input_schema: a JSON schema of its arguments.
        annotations: hints about the tool from its server.
    """

    name: ToolName
    description: str | None = None
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None = None


class McpListToolsItem(BuiltInItem):
    """The tools of a server; in a conversation with this item they are not listed again.

    Args:
        tools: the server's tools.
        error: why the tools could not be listed.
    """

    id_prefix = "mcpl"
    type: Literal["mcp_list_tools"]
    id: Identifier
    server_label: ServerLabel
    tools: Annotated[list[McpListedTool], Field(fail_fast=True, max_length=MAX_LISTED_TOOLS)]
    error: str | None = None


class McpCallItem(BuiltInItem):
    """A call of a server's tool.

    Args:
        name: the tool's name.
        arguments: the arguments as JSON text.
        output: what the tool returned.
        error: why the call failed.
        approval_request_id: the approval request that came before the call.
        status: the state of the call.
    """

    id_prefix = "mcp"
    written = ("response.mcp_call_arguments", "arguments")
    type: Literal["mcp_call"]
    id: Identifier
    server_label: ServerLabel
    name: ToolName
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: Identifier | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] | None = None


class McpApprovalRequestItem(BuiltInItem):
    """A call that waits for the client's approval.

    Args:
        name: the tool's name.
        arguments: the arguments as JSON text.
    """

    id_prefix = "mcpr"
    type: Literal["mcp_approval_request"]
    id: Identifier
    server_label: ServerLabel
    name: ToolName
    arguments: str


class McpApprovalResponseItem(BuiltInItem):
    """The client's decision about a call.

    Args:
        approval_request_id: the id of the request that this answers.
        approve: whether the call may run.
        reason: the reason, for the model.
    """

    id_prefix = "mcpa"
    type: Literal["mcp_approval_response"]
    approval_request_id: Identifier
    approve: bool
    reason: Annotated[str, Field(max_length=4096)] | None = None
    id: Identifier | None = None
