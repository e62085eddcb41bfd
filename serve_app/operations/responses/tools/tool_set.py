"""The service's tools in one response: those that a request names, found by the names of their functions."""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from deployments.operations import Operation
from serve_app.errors.api import BadRequest, invalid_value, shorten
from serve_app.operations.responses.events.server_call import WrittenCall
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.tools.contract import (
    BuiltIns,
    CheckedTool,
    RemoteTool,
    ToolContext,
    ToolInUse,
    WritingTool,
)
from serve_app.operations.responses.tools.loading import ClientFunctions, PlacedTool
from serve_app.operations.responses.tools.search import SearchInUse
from serve_app.operations.scopes import check_operation
from serve_app.schemas.responses.built_in_tool import BuiltInTool
from serve_app.schemas.responses.client_calls import CALL_OUTPUTS
from serve_app.schemas.responses.functions import ClientFunction
from serve_app.schemas.responses.items import AGENT_MESSAGE, EXTERNAL_ITEMS
from serve_app.schemas.responses.shell import ShellTool
from serve_app.schemas.responses.tool_search import ToolSearchTool
from serve_app.schemas.responses.tools import CLIENT_TOOLS, AbsentTool
from serve_app.schemas.responses.updates import ADDITIONAL_TOOLS, CONFIGURATION_UPDATE
from serve_app.schemas.tools import MAX_TOOLS

SHELL_RUNS_IN = Operation.CODE_INTERPRETER
NOT_DECIDED = "This call was not carried out: the user has not approved it."
_DECLINED = "This call was not carried out: the user declined it."
_MAX_NAME_CHARS = 64
_HASH_CHARS = 8
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_NOT_THE_MODELS = frozenset(
    {
        "mcp_approval_response",
        AGENT_MESSAGE,
        *CALL_OUTPUTS,
        ADDITIONAL_TOOLS,
        CONFIGURATION_UPDATE,
        *(kind for kind in EXTERNAL_ITEMS if kind.endswith("_output")),
    }
)


def function_name(server_label: str, name: str) -> str:
    """Return the function name of a remote server's tool, the same in every turn of a conversation.

    If the names are too long or ambiguous together, a hash makes it unique.
    """
    whole = f"{server_label}__{name}"
    plain = _NOT_IN_NAMES.sub("_", whole)
    if plain == whole and len(plain) <= _MAX_NAME_CHARS and "__" not in f"{server_label}_":
        return plain
    unique = hashlib.sha256(whole.encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain[: _MAX_NAME_CHARS - _HASH_CHARS - 1]}_{unique}"


def short_name(server_label: str, function: str) -> str:
    """Return the name of a remote server's function without the server, unless it has a hash."""
    return function.removeprefix(f"{server_label}__")


def declined(response: Item) -> str:
    """Return the output for the model of a call that the user declined."""
    reason = response.get("reason")
    return f"{_DECLINED} The reason: {reason}" if reason else _DECLINED


def approved_requests(items: Sequence[Item]) -> list[Item]:
    """Return the requests that were approved since the model's last item; earlier ones have been carried out."""
    approved: list[str] = []
    for item in reversed(items):
        if item["type"] == "mcp_approval_response":
            approved += [item["approval_request_id"]] if item["approve"] else []
        elif item["type"] not in _NOT_THE_MODELS and not (item["type"] == "message" and item["role"] != "assistant"):
            break
    requests = {item["id"]: item for item in items if item["type"] == "mcp_approval_request"}
    return [requests[request_id] for request_id in dict.fromkeys(reversed(approved)) if request_id in requests]


def check_approvals(items: Sequence[Item], server_labels: Collection[str | None]) -> None:
    """Raise BadRequest if the server of an approved call is not among the tools."""
    for request in approved_requests(items):
        label = request["server_label"]
        if label not in server_labels:
            raise invalid_value(
                f"The approval request {shorten(request['id'])} is for the MCP server '{shorten(label)}', which is "
                "not among the tools. Send that server in 'tools' again.",
                "tools",
            )


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A function of one of the service's tools, in the form of a chat.

    `type` is the tool's; `server_label` is set for a function of a remote server.
    """

    type: str
    function: Item
    server_label: str | None = None

    @property
    def name(self) -> str:
        """What the model calls it."""
        return str(self.function["function"]["name"])


@dataclass(frozen=True, slots=True)
class OpenedTool:
    """A tool of a response, with its type in requests."""

    type: str
    tool: ToolInUse
    server_label: str | None = None

    def offered(self) -> list[OfferedFunction]:
        """Return its functions."""
        return [OfferedFunction(self.type, function, self.server_label) for function in self.tool.functions()]


class ToolSet:
    """The tools of one response. `client` has the client's functions, the rest is about the service's tools.

    `names` maps every name that the model may use to a function. Small models leave the server out of the name of a
    remote tool: that is accepted unless it is ambiguous.
    """

    def __init__(self, tools: Sequence[OpenedTool] = (), client: ClientFunctions | None = None) -> None:
        self.client = client or ClientFunctions()
        self.offered: list[OfferedFunction] = []
        self.has_tools = bool(tools)
        self.remote = [opened.tool for opened in tools if isinstance(opened.tool, RemoteTool)]
        self._opened = list(tools)
        self._unchecked = [opened.tool for opened in tools if isinstance(opened.tool, CheckedTool)]
        self._checking: asyncio.Task[None] | None = None
        self._client_functions = self.client.names
        self._by_name: dict[str, ToolInUse] = {}
        self.names: dict[str, str] = {}
        self.offer()

    def offer(self) -> None:
        """Collect the current functions; a name that two tools have belongs to the first."""
        self.offered.clear()
        self._by_name.clear()
        for opened in self._opened:
            for function in opened.offered():
                if function.name not in self._by_name and function.name not in self._client_functions:
                    self.offered.append(function)
                    self._by_name[function.name] = opened.tool
        self.names = self._short_names() | {name: name for name in self._by_name}

    def _short_names(self) -> dict[str, str]:
        """Return the functions of remote servers by their unambiguous names there."""
        shorts = [
            (short_name(function.server_label, function.name), function.name)
            for function in self.offered
            if function.server_label is not None
        ]
        num_of = Counter(short for short, _ in shorts)
        return {short: name for short, name in shorts if num_of[short] == 1 and short not in self._client_functions}

    def client_functions(self) -> list[ClientFunction]:
        """Return the client's functions that the model sees now."""
        return self.client.shown(MAX_TOOLS - len(self.offered))

    @property
    def is_checked(self) -> bool:
        """Whether every tool has been checked."""
        return not self._unchecked

    def begin_check(self) -> None:
        """Start to check the tools in a task, so that the client does not wait for the model and the tools in turn."""
        if self._checking is None and self._unchecked:
            self._checking = asyncio.create_task(self._check_all())
            self._checking.add_done_callback(_retrieve_error)

    async def check(self) -> None:
        """Raise ApiError if a tool cannot be used as the request asks."""
        self.begin_check()
        if self._checking is not None:
            await self._checking

    async def _check_all(self) -> None:
        while self._unchecked:
            await self._unchecked[0].check()
            del self._unchecked[0]

    def find(self, name: str) -> ToolInUse:
        """Return the tool behind a function."""
        return self._by_name[name]

    def ask_approval(self, name: str, arguments: str) -> Item | None:
        """Return an item that asks the client to approve a call, None if no approval is needed."""
        tool = self._by_name[name]
        return tool.ask_approval(name, arguments) if isinstance(tool, RemoteTool) else None

    def follow(self, name: str) -> WrittenCall | None:
        """Return a new call if it is shown while the model writes it; one that may need an approval is not."""
        tool = self._by_name[name]
        if not isinstance(tool, WritingTool) or self.ask_approval(name, "{}") is not None:
            return None
        return tool.write(tool.begin(name, ""))

    async def list_functions(self) -> None:
        """List the functions of remote tools, without events for a client."""
        for tool in self.remote:
            item = tool.begin_list()
            if item is not None:
                await tool.list_functions(item, lambda kind, **fields: None)
        self.offer()

    def cite(self, text: str) -> list[Item]:
        """Return the annotations that the tools have for a message."""
        return [annotation for opened in self._opened for annotation in opened.tool.cite(text)]

    async def close(self) -> None:
        """Close every tool."""
        if self._checking is not None:
            self._checking.cancel()
        for opened in self._opened:
            await opened.tool.close()


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Retrieve an error that nothing may wait for: asyncio would log it."""
    if not task.cancelled():
        task.exception()


async def open_tools(built_ins: BuiltIns, placed: Sequence[PlacedTool], context: ToolContext) -> ToolSet:
    """Return the tools of a response; `check` those of the service before the client's first event.

    Raises:
        BadRequest: a tool is not switched on, or has the name of another, or hides functions that nothing finds; or
            there are too many functions.
        PermissionDenied: the key's scopes do not include it.
        ApiError: it cannot be used as the request asks.
    """
    client = ClientFunctions(placed)
    taken = set(client.names)
    opened: list[OpenedTool] = []
    for one in placed:
        if one.is_later and any(one.tool.type == other.type for other in opened):
            continue  # A conversation may bring it in each turn.
        tool = await _open(built_ins, one, client, context)
        if tool is None:
            continue
        names = {function.name for function in tool.offered()}
        if names & taken and not isinstance(tool.tool, RemoteTool):  # Those are left out, as before they were listed.
            name = min(names & taken)
            raise invalid_value(
                f"Invalid value: the tool '{tool.type}' is there twice, or a function has its name '{name}'. Name each "
                "tool once, and the function differently.",
                one.at,
            )
        taken |= names
        opened.append(tool)
    if client.deferred and not any(isinstance(one.tool, ToolSearchTool) for one in placed):
        raise invalid_value(
            f"Invalid value: the function '{next(iter(client.deferred))}' is deferred, and nothing can find it. Add "
            "{'type': 'tool_search'} to 'tools', or leave 'defer_loading' out.",
            next(iter(client.deferred.values())).at,
        )
    check_approvals(context.items, {one.server_label for one in opened})
    return ToolSet(opened, client)


def _lacking(problem: str, built_ins: BuiltIns, placed: PlacedTool) -> BadRequest:
    """Return the refusal of a tool that this service does not have."""
    there = ", ".join(f"'{name}'" for name in (*CLIENT_TOOLS, *sorted(built_ins)))
    return BadRequest(
        f"Unsupported value: {problem}. What there is: {there}.", param=f"{placed.at}.type", code="unsupported_value"
    )


async def _open(
    built_ins: BuiltIns, placed: PlacedTool, client: ClientFunctions, context: ToolContext
) -> OpenedTool | None:
    """Return a tool that the service runs, opened; None if the client runs it."""
    tool = placed.tool
    if isinstance(tool, AbsentTool):
        raise _lacking(f"this service has no tool '{tool.type}'. Leave it out", built_ins, placed)
    if isinstance(tool, ToolSearchTool):
        return OpenedTool(tool.type, SearchInUse(client)) if tool.is_hosted else None
    if isinstance(tool, ShellTool):
        return await _open_built_in(built_ins, placed, SHELL_RUNS_IN, context) if tool.is_hosted else None
    return await _open_built_in(built_ins, placed, tool.tool, context) if isinstance(tool, BuiltInTool) else None


async def _open_built_in(built_ins: BuiltIns, placed: PlacedTool, name: Operation, context: ToolContext) -> OpenedTool:
    tool = placed.tool
    built_in = built_ins.get(name)
    if built_in is None:
        problem = f"the tool '{tool.type}' is not switched on in this service. Leave it out, or ask the operator"
        raise _lacking(problem, built_ins, placed)
    check_operation(context.principal, name)
    used = await built_in.open(tool, replace(context, param=placed.at))
    return OpenedTool(tool.type, used, getattr(tool, "server_label", None))
