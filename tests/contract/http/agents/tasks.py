"""What agents are asked to do, and the model that does it: one scripted engine for every client.

A plan is what a competent model does about a prompt, deed by deed. How a client's tools are called for a deed is the
client's own affair, see its adapter.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from deployments.models.contract.engine import EngineRequest, Usage
from tests.contract.http.answers import answer, pieces, said
from tests.contract.http.response_calls import calling
from tests.twins.engine import Script

FILE, BEFORE, AFTER = "notes.txt", "The sea is cobalt.", "The sea is emerald."
SHOW = f"tr a-z A-Z < {FILE}"
SHOWN = AFTER.upper()
STEPS_DONE = "Steps that are done: "
LONG, SHORT = 90_000, 9_000
"""The tokens of a prompt that makes an agent sum up its conversation, and of others."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the file."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Write what the sea is like now into the file."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command that shows the file."""

    command: str = SHOW


@dataclass(frozen=True, slots=True)
class AskServer:
    """Call the tool `stock` of the MCP server `shop`."""

    thing: str = "cups"


@dataclass(frozen=True, slots=True)
class Delegate:
    """Have a sub-agent do what a prompt says."""

    prompt: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the sub-agent, where a client's tool for it returns before it has ended."""


Results = Sequence[str]
"""What the tools said that were called for a prompt so far."""
Deed = Read | Edit | Run | AskServer | Delegate | Wait
Call = tuple[str, dict[str, Any]]
Plans = Mapping[str, Sequence[Deed]]

WORK = "Change the colour of the sea in notes.txt to emerald, and show me the file in capital letters."
LOOK = "Look into notes.txt and tell me what it says."
SHOP = "Find out how many cups the shop has."
HIRE = "Have somebody else look into the notes, and tell me what they say."

PLANS: dict[str, tuple[Deed, ...]] = {
    WORK: (Read(), Edit(), Run()),
    LOOK: (Read(),),
    SHOP: (AskServer(),),
    HIRE: (Delegate(LOOK),),
}


class Model:
    """Plays the model of an agent. It works off the plan of the last prompt that it knows, in whatever conversation.

    Other requests of agents, such as for a title, get a few words. A request to sum up the conversation, which
    `sums_up` recognizes, gets the number of steps that are done; after it the model goes on from there.

    Attributes:
        lacking: the tools that it would have called, and that the agent did not offer.
        summaries: how often it summed up.
        seen: the requests that it answered.
    """

    def __init__(
        self,
        call: Callable[[Deed, Results], Call | str],
        plans: Plans = PLANS,
        sums_up: Callable[[list[dict[str, Any]]], bool] | None = None,
    ) -> None:
        self.lacking: list[str] = []
        self.summaries = 0
        self.seen: list[dict[str, Any]] = []
        self._call = call
        self._plans = plans
        self._sums_up = sums_up or (lambda _: False)
        self._tokens = SHORT if sums_up is None else LONG

    def script(self, request: EngineRequest) -> Script:
        """Return what the model says to a request."""
        body = orjson.loads(request.body)
        if not body.get("messages") or request.operation != "chat":
            return answer(request)
        self.seen.append(body)
        told = self._act(body)
        usage = Usage(SHORT if self.summaries else self._tokens, 30)
        return Script(pieces(request, told, usage), usage)

    def _act(self, body: dict[str, Any]) -> list[list[Any]]:
        messages = body["messages"]
        plan, after = self._plan_of(messages)
        if plan is None:
            return said("A few words.")
        results = [text_of(message) for message in after if message["role"] == "tool"]
        done = max((_number_in(text_of(message)) for message in after), default=0) + len(results)
        if self._sums_up(messages):
            self.summaries += 1
            return said(f"{STEPS_DONE}{done}")
        if done >= len(plan):
            return said(f"It is done: {results[-1] if results else 'all of it.'}")
        wanted = self._call(plan[done], results)
        if isinstance(wanted, str):
            return said(wanted)
        name, arguments = wanted
        offered = {tool["function"]["name"] for tool in body.get("tools", ())}
        if not offered:
            return said("A few words.")
        if name not in offered:
            self.lacking.append(name)
            return said("I lack the tool for that.")
        return calling((f"call_{len(self.seen)}", name, orjson.dumps(arguments).decode()))

    def _plan_of(self, messages: list[dict[str, Any]]) -> tuple[Sequence[Deed] | None, list[dict[str, Any]]]:
        """Return the plan of the last prompt in a conversation, and what came after the prompt."""
        for number in range(len(messages) - 1, -1, -1):
            text = text_of(messages[number]) if messages[number]["role"] == "user" else ""
            for prompt, plan in self._plans.items():
                if prompt in text:
                    return plan, messages[number + 1 :]
        return None, []


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _number_in(text: str) -> int:
    _, found, rest = text.rpartition(STEPS_DONE)
    return int(rest.split()[0].strip(".,")) if found and rest else 0
