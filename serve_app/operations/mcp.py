"""Remote MCP servers in responses: their tools are listed once for a conversation, and called by the service.

The failure of a server does not fail the response: an item shows it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import orjson
from pydantic_core import PydanticCustomError

from deployments.operations import Operation
from deployments.tools.config import McpConfig
from deployments.tools.mcp.client import McpServers, McpSession
from deployments.tools.mcp.messages import CallResult, ListedTool, McpFailure, ServerAddress
from deployments.tools.outbound.errors import AddressRefused
from serve_app.errors.api import invalid_value, shorten
from serve_app.operations.responses.events.server_call import FieldInWriting
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.prompt.outputs import CALL_WENT_WRONG, NO_OUTPUT
from serve_app.operations.responses.tools.contract import (
    CUT,
    ApprovedCall,
    RemoteTool,
    SendEvent,
    ToolAnswer,
    ToolContext,
    ToolResources,
    WritingTool,
)
from serve_app.operations.responses.tools.tool_set import approved_requests, function_name
from serve_app.schemas.json_schema import check_json_schema
from serve_app.schemas.responses.mcp import MAX_TOOL_NAME_CHARS, McpTool

TYPE: Final = Operation.MCP
_CALL = "response.mcp_call"
_LIST = "response.mcp_list_tools"
_MAX_OUTPUT_CHARS = 100_000
_MAX_DESCRIPTION_CHARS = 4096
_MAX_NAMED = 20
_NO_OBJECT = "The call failed: its arguments are not a JSON object. Call it again with one."
_UNKNOWN = "The server has no tool of this name that may be called."
_STOPPED = "The server took too long."


class RemoteMcp:
    """The MCP servers that requests may name in this deployment, a `BuiltIn`."""

    type = TYPE

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def open(self, tool: McpTool, context: ToolContext) -> "McpInUse":
        """Return a server for one response; nothing is sent yet. Raises BadRequest if its address is not allowed."""
        address = ServerAddress(tool.server_url or "", tool.sent_headers)
        try:
            self._servers.check(address.url)
        except AddressRefused as refused:
            is_listed = self._servers.config.allowed_servers is not None
            advice = "Ask the operator." if is_listed else "Send the address of a server on the public internet."
            at = f"{context.param}.server_url"
            raise invalid_value(f"Invalid 'server_url': {refused.message} {advice}", at) from None
        return McpInUse(tool, self._servers.session(address), context, self._servers.config.max_tools)


def create_built_in(config: McpConfig, resources: ToolResources) -> RemoteMcp:
    """Return the MCP tool of a configuration."""
    servers = McpServers(config, resources.config.outbound.rules)
    resources.closing.callback(servers.close)
    return RemoteMcp(servers)


class McpInUse(RemoteTool, WritingTool):
    """A server in one response."""

    def __init__(self, tool: McpTool, session: McpSession, context: ToolContext, max_tools: int) -> None:
        self._tool = tool
        self._session = session
        self._items = context.items
        self._max_tools = max_tools
        listed = _last_list(context.items, tool.server_label)
        self._is_listed = listed is not None
        self._by_function: dict[str, Item] = {}
        self._take([] if listed is None else listed)

    def _take(self, tools: Sequence[Item]) -> list[str]:
        """Add the tools that may be called; return the names of those that cannot be offered."""
        impossible = []
        for tool in tools:
            if not self._tool.is_allowed(tool["name"], is_read_only=_is_read_only(tool)):
                continue
            if len(self._by_function) < self._max_tools and _is_possible(tool):
                self._by_function[function_name(self._tool.server_label, tool["name"])] = tool
            else:
                impossible.append(tool["name"])
        return impossible

    def functions(self) -> list[Item]:
        """Return the server's tools as functions for the model."""
        about = self._tool.server_description
        server = f"{self._tool.server_label}: {about}" if about else self._tool.server_label
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": f"{(tool.get('description') or '')[:_MAX_DESCRIPTION_CHARS]} [{server}]".strip(),
                    "parameters": tool["input_schema"],
                },
            }
            for name, tool in self._by_function.items()
        ]

    def begin_list(self) -> Item | None:
        """Return a new item for the list of tools, None where the conversation has one."""
        if self._is_listed:
            return None
        return {"id": new_id("mcpl"), "type": "mcp_list_tools", "server_label": self._tool.server_label, "tools": []}

    async def list_functions(self, item: Item, send: SendEvent) -> ToolAnswer:
        """List the server's tools; if that fails, the item has an error and no tools."""
        send(f"{_LIST}.in_progress")
        item["error"] = _STOPPED  # Until it ends.
        try:
            listed = await self._session.list_tools()
            tools = [shown for shown in map(_shown, listed) if self._is_allowed(shown)]
            if len(tools) > self._max_tools:
                raise McpFailure(
                    f"The server has {len(tools)} tools, and a response may use {self._max_tools} of one. Name those "
                    "that are wanted in 'allowed_tools'."
                )
        except asyncio.CancelledError:
            send(f"{_LIST}.failed")
            raise
        except McpFailure as failure:
            send(f"{_LIST}.failed")
            return ToolAnswer({**item, "error": f"The tools could not be listed: {failure.message}"}, "")
        self._is_listed = True
        left_out = self._take(tools)
        send(f"{_LIST}.completed")
        fields = {**item, "tools": [tool for tool in tools if tool["name"] not in left_out]}
        del fields["error"]  # Strict clients accept no null here.
        if left_out:
            fields["error"] = _left_out(left_out)
        return ToolAnswer(fields, "")

    def _is_allowed(self, tool: Item) -> bool:
        return self._tool.is_allowed(tool["name"], is_read_only=_is_read_only(tool))

    def _name_of(self, function: str) -> str:
        tool = self._by_function.get(function)
        return function if tool is None else str(tool["name"])

    def ask_approval(self, name: str, arguments: str) -> Item | None:
        """Return an item that asks the client to approve a call, None if no approval is needed."""
        tool = self._by_function[name]
        if _parse(arguments) is None:  # It fails, so no approval is needed.
            return None
        if not self._tool.needs_approval(tool["name"], is_read_only=_is_read_only(tool)):
            return None
        head = {"id": new_id("mcpr"), "type": "mcp_approval_request", "server_label": self._tool.server_label}
        return {**head, "name": tool["name"], "arguments": arguments}

    def approved(self) -> list[ApprovedCall]:
        """Return the calls of this server's tools that the client has just approved."""
        label = self._tool.server_label
        requests = [item for item in approved_requests(self._items) if item["server_label"] == label]
        return [
            ApprovedCall(
                self._item(request["name"], request["id"]), function_name(label, request["name"]), request["arguments"]
            )
            for request in requests
        ]

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call."""
        return self._item(self._name_of(name), None)

    def _item(self, name: str, request_id: str | None) -> Item:
        head = {"id": new_id("mcp"), "type": "mcp_call", "status": "in_progress", "approval_request_id": request_id}
        server = {"server_label": self._tool.server_label, "name": name}
        return {**head, **server, "arguments": "", "output": None, "error": None}

    def write(self, item: Item) -> FieldInWriting:
        """Return the call as it is shown while the model writes its arguments."""
        return FieldInWriting(item, f"{_CALL}_arguments", "arguments", f"{_CALL}.in_progress")

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Carry out a call; cancelling this cancels the call."""
        parsed = _parse(arguments)
        try:
            if name not in self._by_function:
                raise McpFailure(_UNKNOWN)
            if parsed is None:
                raise McpFailure(_NO_OBJECT)
            result = await self._session.call(self._name_of(name), parsed)
        except asyncio.CancelledError:
            item["error"] = McpFailure(_STOPPED).to_wire()
            send(f"{_CALL}.failed")
            raise
        except McpFailure as failure:
            send(f"{_CALL}.failed")
            answer = {**item, "status": "failed", "error": failure.to_wire()}
            return ToolAnswer(answer, f"{CALL_WENT_WRONG} {failure.message}")
        return self._answer(item, result, send)

    def _answer(self, item: Item, result: CallResult, send: SendEvent) -> ToolAnswer:
        text = result.text
        if len(text) > _MAX_OUTPUT_CHARS:
            text = text[:_MAX_OUTPUT_CHARS] + CUT
        if result.is_error:
            send(f"{_CALL}.failed")
            error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
            return ToolAnswer({**item, "status": "failed", "error": error}, f"{CALL_WENT_WRONG} {text}")
        send(f"{_CALL}.completed")
        return ToolAnswer({**item, "status": "completed", "output": text}, text or NO_OUTPUT)

    async def close(self) -> None:
        """Close the session."""
        self._session.close()


def _last_list(items: Sequence[Item], label: str) -> list[Item] | None:
    """Return the server's tools from the conversation, None if they are not in it."""
    for item in reversed(items):
        if item["type"] == "mcp_list_tools" and item["server_label"] == label:
            tools: list[Item] = item["tools"]
            return tools if tools or not item.get("error") else None
    return None


def _shown(tool: ListedTool) -> Item:
    hints = {name: _short(value) for name, value in tool.annotations.items()}
    hints["read_only"] = tool.annotations.get("readOnlyHint") is True
    about = {"description": _short(tool.description)} if tool.description is not None else {}
    return {"name": tool.name, **about, "input_schema": tool.input_schema, "annotations": hints}


def _short(value: Any) -> Any:
    """Return a server's description, cut to what the model reads, because it is stored with the response."""
    return value[:_MAX_DESCRIPTION_CHARS] if isinstance(value, str) else value


def _is_read_only(tool: Item) -> bool:
    return (tool.get("annotations") or {}).get("read_only") is True


def _is_possible(tool: Item) -> bool:
    """Return whether a tool is within the bounds of clients' functions."""
    try:
        check_json_schema(tool["input_schema"], "")
    except PydanticCustomError:
        return False
    return 0 < len(tool["name"]) <= MAX_TOOL_NAME_CHARS


def _left_out(names: list[str]) -> str:
    listed = ", ".join(map(shorten, names[:_MAX_NAMED]))
    return f"Left out, because their names or input schemas exceed the limits for functions: {listed}."


def _parse(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call, None if they are not a JSON object; a model may leave out an empty one."""
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None
