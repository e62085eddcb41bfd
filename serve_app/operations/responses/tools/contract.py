"""The contract of the service's own tools, and their bounds.

A `BuiltIn` is a tool of this deployment; its `open` returns a `ToolInUse` for one response, which offers functions to
the model and carries out their calls.
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
from serve_app.operations.responses.events.server_call import ToolEvent, WrittenCall
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.routing import CacheSalt


class SendEvent(Protocol):
    """Sends one of a tool's own events, such as `response.web_search_call.searching`."""

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send an event; item and index are added."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a call: the finished item for the client, the text for the model, the usage.

    `cites` is the state from which a `CitingTool` cites this call and those before it, as JSON. `follows` is an item
    with the output of the call, for tools whose calls have none in their own item, and `tells` are its events.
    """

    item: Item
    output: str
    usage: Usage | None = None
    cites: Any = None
    follows: Item | None = None
    tells: Sequence[ToolEvent] = ()


class ToolInUse(Protocol):
    """A tool in one response; it opens what it needs at its first call."""

    def functions(self) -> Sequence[Item]:
        """Return the functions for the model, as in a chat."""

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call of one of the functions, with its id and the status in_progress."""

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Carry out a call. The task is cancelled when the client disconnects or the time is up.

        `arguments` are as the model wrote them, maybe not JSON. An exception fails the call, not the response.
        """

    def cite(self, text: str) -> list[Item]:
        """Return this tool's annotations of a message."""
        return []

    async def close(self) -> None:
        """Release the tool's resources at the end of the response."""
        return


class WritingTool(ToolInUse):
    """A tool whose calls the client sees while the model writes them."""

    @abstractmethod
    def write(self, item: Item) -> WrittenCall:
        """Return the call as it is shown in its new item; `run` comes after its end."""


class CheckedTool(ToolInUse):
    """A tool that must look something up to know whether it can serve the request.

    It does so while the model begins to read, before the client's first event and before any call.
    """

    @abstractmethod
    async def check(self) -> None:
        """Raise ApiError if the tool cannot be used as the request asks."""


class CitingTool(ToolInUse):
    """A tool that cites from what its calls have found."""

    @abstractmethod
    def recall(self, cites: Any) -> None:
        """Restore the `cites` of an answer from another process."""


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that the client has approved, with its new item."""

    item: Item
    name: str
    arguments: str


class RemoteTool(ToolInUse):
    """A tool with remote functions: they are listed before the model is asked, and calls may need an approval."""

    @abstractmethod
    def begin_list(self) -> Item | None:
        """Return a new item for the list of the functions, None where they are known."""

    @abstractmethod
    async def list_functions(self, item: Item, send: SendEvent) -> ToolAnswer:
        """List the functions, which `functions` then returns; a failure is shown in the item."""

    @abstractmethod
    def ask_approval(self, name: str, arguments: str) -> Item | None:
        """Return an item that asks the client to approve a call, None if no approval is needed."""

    @abstractmethod
    def approved(self) -> Sequence[ApprovedCall]:
        """Return the calls that the client has approved; they run before the model is asked."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The response that a tool is opened for.

    `items` are those of the whole conversation, `outputs` the outputs of the service's functions in it, with their
    names, `include` is the request's, `param` the tool's place in the request, for errors. `is_batch` marks a line of a
    batch, for which no client waits. `max_model_len` is the model's context in tokens. `carried_out` are the items of
    calls that this response has carried out in another process.
    """

    principal: Principal
    items: Sequence[Item]
    include: frozenset[str] = frozenset()
    param: str = "tools[0]"
    is_batch: bool = False
    max_model_len: int = 4096
    outputs: Sequence[tuple[str, str]] = ()
    carried_out: Sequence[Item] = ()

    def calls(self, *kinds: str) -> list[Item]:
        """Return the items of calls of some types, in the conversation and in this response."""
        return [item for item in (*self.items, *self.carried_out) if item["type"] in kinds]


class BuiltIn(Protocol):
    """A tool that this deployment has switched on."""

    @property
    def type(self) -> Operation:
        """Its name in the configuration and in the scopes of keys."""

    async def open(self, tool: Any, context: ToolContext) -> ToolInUse:
        """Return the tool for one response; `tool` is its schema. Look-ups belong into a `CheckedTool`.

        Raises:
            ApiError: the tool cannot be used as the request asks.
        """


BuiltIns = Mapping[str, BuiltIn]
"""The tools that are switched on, by type."""


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """The bounds on all calls of a response together, and on the length of each output, which is cut there."""

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
    """What `create_built_in` of a tool gets: the configuration, the stores, the models, and the object store.

    `choosers` lead to the deployments of tools, by type. A tool registers its connections on `closing`.
    """

    config: ToolsConfig
    database: Database
    files: FileStore
    directory: ModelDirectory
    salt: CacheSalt
    place: ResolvedObjectStore
    choosers: Mapping[str, ServeChooser] = field(default_factory=dict)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
