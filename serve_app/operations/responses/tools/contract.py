"""Tools that the service runs itself: what one must be able to do, and the bounds within which they run.

A `BuiltIn` is a tool as this deployment has it; `open` makes of it, for one response, a `ToolInUse`, which offers the
model one function or several and carries its calls out. The loop is in `run`, and knows no tool by name.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from deployments.models.contract.engine import Usage
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.errors.api import BadRequest
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.events.written_call import WrittenCall
from serve_app.operations.responses.tools.approvals import check_approvals, short_name
from serve_app.operations.responses.tools.lookup import Lookup
from serve_app.operations.scopes import check_operation
from serve_app.schemas.responses.built_in_tool import BuiltInTool
from serve_app.schemas.responses.tools import FunctionTool, Tool


class Tell(Protocol):
    """Sends one of a tool's own events, such as `response.web_search_call.searching`, in its place in the stream."""

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send an event; its item and place are filled in."""
        ...


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a call came to: the finished item for the client, the text for the model, the tokens that it took.

    `cites` is what a `CitingTool` must know to cite from this call and those before it, as JSON.
    """

    item: Item
    output: str
    usage: Usage | None = None
    cites: Any = None


class ToolInUse(Protocol):
    """A tool within one response; nothing that it needs is made before its first call."""

    def functions(self) -> Sequence[Item]:
        """Return the functions that the model is offered, as a chat has them."""
        ...

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call of one of the functions, with its id and the status in_progress."""
        ...

    async def run(self, item: Item, name: str, arguments: str, tell: Tell) -> ToolAnswer:
        """Carry a call out. The run cancels the task when the client leaves or the time is up.

        `arguments` are what the model wrote: maybe no JSON. An exception makes the call a failed one, not the response.
        """
        ...

    def cite(self, text: str) -> list[Item]:
        """Return the annotations of a message that the model has written: what of it comes from this tool."""
        ...

    async def close(self) -> None:
        """Let go of what the response alone needed; the response has ended."""
        ...


class WritingTool(ToolInUse):
    """A tool whose calls are seen while the model writes them."""

    @abstractmethod
    def write(self, item: Item) -> WrittenCall:
        """Return what shows a call in its new item; `run` comes after its end."""


class CheckedTool(ToolInUse):
    """A tool that must look something up before it knows whether it can serve the request.

    It does so while the model begins to read, before the client gets an event and before any call.
    """

    @abstractmethod
    async def check(self) -> None:
        """Check that it can be used as the request asks.

        Raises:
            ApiError: it cannot.
        """


class CitingTool(ToolInUse):
    """A tool that cites from what its calls have found."""

    @abstractmethod
    def recall(self, cites: Any) -> None:
        """Take over the `cites` of an answer that the tool gave in another process."""


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that the client has approved: its new item, and what the model asked for."""

    item: Item
    name: str
    arguments: str


class RemoteTool(ToolInUse):
    """A tool whose functions others have: they are listed before the model is asked, and calls may need an approval."""

    @abstractmethod
    def begin_list(self) -> Item | None:
        """Return a new item for the list of the functions, None where they are known."""

    @abstractmethod
    async def list_functions(self, item: Item, tell: Tell) -> ToolAnswer:
        """Ask for the functions, which `functions` then returns; that it fails is for the item to say."""

    @abstractmethod
    def ask_approval(self, name: str, arguments: str) -> Item | None:
        """Return an item that asks the client whether a call may be made, None where it may."""

    @abstractmethod
    def approved(self) -> Sequence[ApprovedCall]:
        """Return the calls that the client has approved, which are to be made before the model is asked."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the response that it is opened for.

    `items` are those of the whole conversation, `outputs` what functions of the service's tools answered in it, each
    with its name, `include` what the caller wants to see of the answer, `param` the tool's place in the request, for
    errors. Nobody waits for a line of a batch, `is_batch`, or comes back to it soon. `max_model_len` is the size of the
    model's context, in tokens. `made` are the items of calls that this response has made already, where another process
    goes on with it.
    """

    principal: Principal
    items: Sequence[Item]
    include: frozenset[str] = frozenset()
    param: str = "tools[0]"
    is_batch: bool = False
    max_model_len: int = 4096
    outputs: Sequence[tuple[str, str]] = ()
    made: Sequence[Item] = ()

    def calls(self, kind: str) -> list[Item]:
        """Return the items of calls of one type that there have been, in the conversation and in this response."""
        return [item for item in (*self.items, *self.made) if item["type"] == kind]


class BuiltIn(Protocol):
    """A tool that this deployment has switched on."""

    @property
    def type(self) -> Operation:
        """What the configuration and the scopes of keys call it."""
        ...

    async def open(self, tool: Any, context: ToolContext) -> ToolInUse:
        """Return the tool for one response; `tool` is of the schema that goes with `type`.

        Raises:
            ApiError: it cannot be used as the request asks; what is looked up for that belongs into a `CheckedTool`.
        """
        ...


BuiltIns = Mapping[str, BuiltIn]
"""The tools that are switched on, by type."""


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A function of one of the service's tools, in the chat's own form.

    `type` is the tool's; `server_label` that of the remote server which has the function.
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
    """A tool of a response, by what requests call it."""

    type: str
    tool: ToolInUse
    server_label: str | None = None

    def offered(self) -> list[OfferedFunction]:
        """Return its functions."""
        return [OfferedFunction(self.type, function, self.server_label) for function in self.tool.functions()]


class ToolSet:
    """The service's tools of one response; `names` are their functions, by each name that the model may give them.

    Small models leave the server out of the name of a remote tool. Where only one tool can be meant, it is that one.
    """

    def __init__(self, tools: Sequence[OpenedTool] = (), client_functions: Collection[str] = ()) -> None:
        """Take the tools, and the names of the functions that the client runs."""
        self.offered: list[OfferedFunction] = []
        self.has_tools = bool(tools)
        self.remote = [opened.tool for opened in tools if isinstance(opened.tool, RemoteTool)]
        self._opened = list(tools)
        self._unchecked = [opened.tool for opened in tools if isinstance(opened.tool, CheckedTool)]
        self._checking: Lookup[None] | None = None
        self._client_functions = client_functions
        self._by_name: dict[str, ToolInUse] = {}
        self.names: dict[str, str] = {}
        self.offer()

    def offer(self) -> None:
        """Collect the functions that there are now; a name that two tools have belongs to the first."""
        self.offered.clear()
        self._by_name.clear()
        for opened in self._opened:
            for function in opened.offered():
                if function.name not in self._by_name and function.name not in self._client_functions:
                    self.offered.append(function)
                    self._by_name[function.name] = opened.tool
        self.names = self._short_names() | {name: name for name in self._by_name}

    def _short_names(self) -> dict[str, str]:
        """Return the functions of remote servers by their names there, but for those of several and of the client."""
        shorts = [
            (short_name(function.server_label, function.name), function.name)
            for function in self.offered
            if function.server_label is not None
        ]
        num_of = Counter(short for short, _ in shorts)
        return {short: name for short, name in shorts if num_of[short] == 1 and short not in self._client_functions}

    @property
    def is_checked(self) -> bool:
        """It is known that every tool can be used as the request asks."""
        return not self._unchecked

    def begin_check(self) -> None:
        """Start the look-ups of the tools as a task of its own, if they have not been started."""
        if self._checking is None and self._unchecked:
            self._checking = Lookup(self._check_all())

    async def check(self) -> None:
        """Check that every tool can be used as the request asks, while the answer can still be refused.

        Raises:
            ApiError: one cannot.
        """
        self.begin_check()
        if self._checking is not None:
            await self._checking.result()

    async def _check_all(self) -> None:
        while self._unchecked:
            await self._unchecked[0].check()
            del self._unchecked[0]

    def find(self, name: str) -> ToolInUse:
        """Return the tool behind a function."""
        return self._by_name[name]

    def ask_approval(self, name: str, arguments: str) -> Item | None:
        """Return an item that asks the client whether a call may be made, None where it may."""
        tool = self._by_name[name]
        return tool.ask_approval(name, arguments) if isinstance(tool, RemoteTool) else None

    def follow(self, name: str) -> WrittenCall | None:
        """Return what shows a new call while the model writes it; one that the client may be asked about is not yet."""
        tool = self._by_name[name]
        if not isinstance(tool, WritingTool) or self.ask_approval(name, "{}") is not None:
            return None
        return tool.write(tool.begin(name, ""))

    async def list_functions(self) -> None:
        """Have all functions listed, without events for a client."""
        for tool in self.remote:
            item = tool.begin_list()
            if item is not None:
                await tool.list_functions(item, _ignore_event)
        self.offer()

    def cite(self, text: str) -> list[Item]:
        """Return the annotations that the tools have for a message."""
        return [annotation for opened in self._opened for annotation in opened.tool.cite(text)]

    async def close(self) -> None:
        """Close every tool; what one fails at, another need not."""
        if self._checking is not None:
            self._checking.cancel()
        for opened in self._opened:
            await opened.tool.close()


def _ignore_event(kind: str, **fields: Any) -> None:
    return None


async def open_tools(built_ins: BuiltIns, tools: Sequence[Tool], context: ToolContext) -> ToolSet:
    """Return the service's tools that a request names; `check` them before the client gets an event.

    Raises:
        BadRequest: one is not switched on here, or clashes with another.
        PermissionDenied: the key's scopes leave one out.
        ApiError: one cannot be used as the request asks.
    """
    client_functions = {tool.name for tool in tools if isinstance(tool, FunctionTool)}
    taken = set(client_functions)
    opened: list[OpenedTool] = []
    for index, tool in enumerate(tools):
        if not isinstance(tool, BuiltInTool):
            continue
        param = f"tools[{index}]"
        built_in = built_ins.get(tool.tool)
        if built_in is None:
            raise BadRequest(
                f"Unsupported value: the tool '{tool.type}' is not switched on in this service. Leave it out, or ask "
                "the operator.",
                param=f"{param}.type",
                code="unsupported_value",
            )
        check_operation(context.principal, tool.tool)
        own = replace(context, param=param)
        one = OpenedTool(tool.type, await built_in.open(tool, own), getattr(tool, "server_label", None))
        names = {function.name for function in one.offered()}
        if names & taken and not isinstance(one.tool, RemoteTool):  # Those are left out, as before they were listed.
            name = min(names & taken)
            raise BadRequest(
                f"Invalid value: the tool '{tool.type}' is there twice, or a function has its name '{name}'. Name each "
                "tool once, and the function differently.",
                param=param,
                code="invalid_value",
            )
        taken |= names
        opened.append(one)
    check_approvals(context.items, {one.server_label for one in opened})
    return ToolSet(opened, client_functions)


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """How much the tools of one response may take, all calls together; what is longer of an output is cut off."""

    max_calls: int = 20
    max_s: float = 120.0
    max_output_chars: int = 100_000


NO_MORE_CALLS = "This call was not carried out: the limit of tool calls is reached. Answer with what is known."
TIME_IS_UP = "This call was stopped: it took too long. Answer with what is known."
CALL_FAILED = "This call failed. Answer with what is known, or try something else."
INTERRUPTED = "This call was interrupted; it is not known whether it was carried out. Answer with what is known."
CUT = "\n[The rest was cut off.]"
