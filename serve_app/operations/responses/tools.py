"""Tools that the service runs itself: what one must be able to do, and the bounds within which they run.

There is none yet; the loop that runs them is in `run`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from deployments.models.engine import Usage
from deployments.state.protocol import Principal
from serve_app.operations.responses.writer import Item


class Tell(Protocol):
    """Sends one of a tool's own events, such as `response.web_search_call.searching`, in its place in the stream."""

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send an event; its item and place are filled in."""
        ...


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a call came to: the finished item for the client, the text for the model, the tokens that it took."""

    item: Item
    output: str
    usage: Usage | None = None


class Tool(Protocol):
    """A tool that the service runs when the model calls it."""

    @property
    def name(self) -> str:
        """What the model calls it."""
        ...

    def function(self) -> Item:
        """Return its definition as a function of a chat."""
        ...

    def begin(self, arguments: str) -> Item:
        """Return a new item for a call, with its id and the status in_progress."""
        ...

    async def run(self, item: Item, arguments: str, principal: Principal, tell: Tell) -> ToolAnswer:
        """Carry a call out. Whoever waits cancels the task when the client leaves or the time is up.

        `arguments` are what the model wrote: maybe no JSON. An exception makes the call a failed one, not the response.
        """
        ...


Tools = Mapping[str, Tool]


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """How much the tools of one response may take, all calls together; what is longer of an output is cut off."""

    max_calls: int = 20
    max_s: float = 120.0
    max_output_chars: int = 100_000


NO_MORE_CALLS = "This call was not carried out: the limit of tool calls is reached. Answer with what is known."
TIME_IS_UP = "This call was stopped: it took too long. Answer with what is known."
CALL_FAILED = "This call failed. Answer with what is known, or try something else."
CUT = "\n[The rest was cut off.]"
