"""The contract of the tools that the service runs itself, and the bounds within which they run.

A `BuiltIn` is a tool of this deployment; its `open` makes a `ToolInUse` for one response, which offers the model
functions and carries their calls out. `run` calls it and knows no tool by name.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from deployments.models.contract.engine import ModelDirectory, Usage
from deployments.operations import Operation
from deployments.state.database.connection import Database
from deployments.state.files.store import FileStore
from deployments.state.identity.principal import Principal
from deployments.state.objects.config import ResolvedObjectStore
from deployments.tools.code_interpreter.client import ServeChooser
from deployments.tools.config import ToolsConfig
from serve_app.operations.responses.events.server_call import WrittenCall
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.routing import CacheSalt


class SendEvent(Protocol):
    """Sends one of a tool's own events, such as `response.web_search_call.searching`, in its place in the stream."""

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send an event; its item and place are filled in."""
        ...


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a call: the finished item for the client, the text for the model, the tokens that it took.

    `cites` is what a `CitingTool` needs to cite from this call and those before it, as JSON.
    """

    item: Item
    output: str
    usage: Usage | None = None
    cites: Any = None


class ToolInUse(Protocol):
    """A tool within one response; it makes what it needs at its first call."""

    def functions(self) -> Sequence[Item]:
        """Return the functions that the model is offered, as a chat has them."""
        ...

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call of one of the functions, with its id and the status in_progress."""
        ...

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Carry a call out. The run cancels the task when the client leaves or the time is up.

        `arguments` are what the model wrote: maybe no JSON. An exception makes the call a failed one, not the response.
        """
        ...

    def cite(self, text: str) -> list[Item]:
        """Return the annotations of a message: the places that come from this tool."""
        return []

    async def close(self) -> None:
        """Release what the response needed; it has ended."""
        return


class WritingTool(ToolInUse):
    """A tool whose calls the client sees while the model writes them."""

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
    """A tool with functions elsewhere: they are listed before the model is asked, and calls may need an approval."""

    @abstractmethod
    def begin_list(self) -> Item | None:
        """Return a new item for the list of the functions, None where they are known."""

    @abstractmethod
    async def list_functions(self, item: Item, send: SendEvent) -> ToolAnswer:
        """Ask for the functions, which `functions` then returns; a failure is shown in the item."""

    @abstractmethod
    def ask_approval(self, name: str, arguments: str) -> Item | None:
        """Return an item that asks the client whether a call may be made, None where it may."""

    @abstractmethod
    def approved(self) -> Sequence[ApprovedCall]:
        """Return the calls that the client has approved; they run before the model is asked."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the response that it is opened for.

    `items` are those of the whole conversation, `outputs` the outputs of the service's functions in it, each with its
    name, `include` what the client wants to see of the answer, `param` the tool's place in the request, for errors.
    `is_batch` marks a line of a batch, for which no client waits. `max_model_len` is the size of the model's context,
    in tokens. `made` are the items of calls that this response has made in another process.
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
        """Return the items of calls of one type, in the conversation and in this response."""
        return [item for item in (*self.items, *self.made) if item["type"] == kind]


class BuiltIn(Protocol):
    """A tool that this deployment has switched on."""

    @property
    def type(self) -> Operation:
        """Its name in the configuration and in the scopes of keys."""
        ...

    async def open(self, tool: Any, context: ToolContext) -> ToolInUse:
        """Return the tool for one response; `tool` is of the schema that goes with `type`.

        Raises:
            ApiError: it cannot be used as the request asks. Checks that look something up belong into a `CheckedTool`.
        """
        ...


BuiltIns = Mapping[str, BuiltIn]
"""The tools that are switched on, by type."""


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """The bounds on all calls of a response together, and on the length of each output, which is cut off there."""

    max_calls: int = 20
    max_s: float = 120.0
    max_output_chars: int = 100_000


NO_MORE_CALLS = "This call was not carried out: the limit of tool calls is reached. Answer with what is known."
TIME_IS_UP = "This call was stopped: it took too long. Answer with what is known."
CALL_FAILED = "This call failed. Answer with what is known, or try something else."
INTERRUPTED = "This call was interrupted; it is not known whether it was carried out. Answer with what is known."
CUT = "\n[The rest was cut off.]"


@dataclass(frozen=True, slots=True)
class ToolResources:
    """What tools are made from: their configuration, the stores, the models, and the object store.

    `choosers` lead to the deployments of tools that have one, by type. A tool registers on `closing` what it opens.
    """

    config: ToolsConfig
    database: Database
    files: FileStore
    directory: ModelDirectory
    salt: CacheSalt
    place: ResolvedObjectStore
    choosers: Mapping[str, ServeChooser] = field(default_factory=dict)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
