"""From the items of a conversation to the messages of a chat, in the order that chat templates need.

Successive reasoning, text and calls of the assistant become one message; the outputs of its calls come right after it.
Only whole turns are dropped to fit, so a call is never separated from its output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from serve_app.errors.api import BadRequest, invalid_value, shorten
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.prompt.outputs import (
    CALL_WENT_WRONG,
    NO_OUTPUT,
    agent_text,
    call_id_of,
    content_of,
    external_call,
    external_output,
    output_of,
    output_type,
)
from serve_app.operations.responses.tools.tool_set import NOT_DECIDED, declined, function_name
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.custom_tools import arguments_of
from serve_app.schemas.responses.client_calls import CALL_OUTPUTS
from serve_app.schemas.responses.items import EXTERNAL_ITEMS, TOOL_SEARCH_OUTPUT
from serve_app.schemas.responses.tool_search import ToolSearchTool
from serve_app.schemas.responses.tools import BUILT_IN_ITEMS
from serve_app.schemas.tools import called_name

Message = dict[str, Any]

_COMPACTED = "What was said before, in short:\n"
_MAX_CALLS = 128
"""Of one message: a chat with more is refused, so those beyond need not be read."""
_MESSAGE_TOKENS = 4
_IMAGE_TOKENS = 765


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str
    arguments: str
    is_whole: bool = True
    output: Any = None
    may_lack_output: bool = False


@dataclass(slots=True)
class _AssistantMessage:
    """A message of the assistant: its reasoning, its text, and its calls of functions."""

    reasoning: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A call of one of the service's tools: the arguments and the output for the model, which the item lacks."""

    name: str
    arguments: str
    output: str


class History:
    """Reads items, with their files as text, into messages. `runs` has calls of the service's tools by item id.

    The request's own items begin at `own_from`: an error names their index.

    Raises:
        BadRequest: an output or an approval has no call.
    """

    def __init__(self, items: Sequence[Item], own_from: int = 0, runs: Mapping[str, ServerRun] | None = None) -> None:
        self._own_from = own_from
        self._runs = runs or {}
        self._entries: list[Message | _AssistantMessage] = []
        self._waiting: dict[str, _Call] = {}
        self._requests: dict[str, _Call] = {}
        self._answered: set[str] = set()
        self._last_compaction = max((i for i, item in enumerate(items) if item["type"] == "compaction"), default=-1)
        for index, item in enumerate(items):
            self._read(index, item)

    def _read(self, index: int, item: Item) -> None:
        match item["type"]:
            case "message":
                self._read_message(item)
            case "agent_message":
                self._entries.append({"role": "user", "content": agent_text(item)})
            case "reasoning":
                thought = "\n".join(part["text"] for part in item.get("content") or item["summary"])
                if thought:
                    self._assistant(starts_anew=True).reasoning.append(thought)
            case "function_call" | "custom_tool_call" as kind:
                name = called_name(item.get("namespace"), item["name"])
                arguments = item["arguments"] if kind == "function_call" else arguments_of(item["input"])
                self._ask(_Call(item["call_id"], name, arguments, item["status"] == "completed"))
            case kind if kind in CALL_OUTPUTS:
                self._answer(index, item, output_of(item["output"]))
            case kind if kind in EXTERNAL_ITEMS:
                self._read_external(index, item)
            case "compaction":
                self._compact(index, item["text"])
            case "mcp_call" | "mcp_approval_request" | "mcp_approval_response":
                self._read_remote(index, item)
            case _ if item["id"] in self._runs:
                run = self._runs[item["id"]]
                self._add_run(item["id"], run.name, run.arguments, run.output)
            case kind if kind in BUILT_IN_ITEMS and (shown := BUILT_IN_ITEMS[kind].show(item)) is not None:
                self._add_run(item["id"], *shown)

    def _read_message(self, item: Item) -> None:
        if item["role"] == "assistant":
            message = self._assistant(starts_anew=True)
            message.text.append("".join(part.get("text") or part.get("refusal") or "" for part in item["content"]))
        else:
            self._entries.append({"role": item["role"], "content": content_of(item["content"])})

    def _compact(self, index: int, summary: str) -> None:
        """Replace what the assistant said and did before by a summary; calls that have no output yet stay.

        The last compaction does so for all: an input may have very many.
        """
        if index == self._last_compaction:
            self._entries = [
                entry
                for entry in self._entries
                if not isinstance(entry, _AssistantMessage) or any(call.output is None for call in entry.calls)
            ]
        self._entries.append(summary_message(summary))

    def _read_external(self, index: int, item: Item) -> None:
        """Read a call of a tool that does not run here, or its output, as those of a function."""
        if item["type"].endswith("_output"):
            self._answer(index, item, external_output(item))
        else:
            output = None if output_type(item["type"]) in EXTERNAL_ITEMS else NO_OUTPUT
            self._ask(_Call(call_id_of(item), *external_call(item), output=output, may_lack_output=True))

    def _ask(self, call: _Call) -> None:
        self._assistant(starts_anew=False).calls.append(call)
        self._waiting[call.call_id] = call
        self._answered.discard(call.call_id)

    def _add_run(self, item_id: str, name: str, arguments: str, output: str) -> _Call:
        call = _Call(f"call_{item_id}", name, arguments, output=output)
        self._assistant(starts_anew=False).calls.append(call)
        return call

    def _read_remote(self, index: int, item: Item) -> None:
        match item["type"]:
            case "mcp_approval_request":
                self._requests[item["id"]] = self._add_run(item["id"], *_call_of(item), NOT_DECIDED)
            case "mcp_approval_response":
                self._decide(index, item)
            case _:
                self._read_remote_call(item)

    def _decide(self, index: int, item: Item) -> None:
        """Read the client's decision about a call; a call that is approved but not carried out is left out."""
        request_id = item["approval_request_id"]
        call = self._requests.get(request_id)
        if call is None:
            raise invalid_value(
                f"No approval request found with id {shorten(request_id)}.",
                f"input[{index - self._own_from}].approval_request_id" if index >= self._own_from else "input",
            )
        call.is_whole, call.output = not item["approve"], None if item["approve"] else declined(item)

    def _read_remote_call(self, item: Item) -> None:
        """Read a remote call in the place of its approval request, if there was one.

        A call in which the model was cut off was never carried out, so it is left out.
        """
        run = self._runs.get(item["id"])
        if run is None and item.get("status") == "incomplete" and not item.get("output") and not item.get("error"):
            return
        output = run.output if run is not None else item.get("output") or _error_of(item)
        call = self._requests.get(item.get("approval_request_id") or "")
        if call is not None:
            call.is_whole, call.output = True, output
        else:
            self._add_run(item["id"], *_call_of(item), output)

    def _assistant(self, *, starts_anew: bool) -> _AssistantMessage:
        """Return the assistant's message for an item.

        An item after an output begins a new message, and one that `starts_anew` also after text or a call.
        """
        last = self._entries[-1] if self._entries else None
        if (
            isinstance(last, _AssistantMessage)
            and not any(call.output is not None for call in last.calls[:_MAX_CALLS])
            and not (starts_anew and (last.calls or last.text))
        ):
            return last
        new = _AssistantMessage()
        self._entries.append(new)
        return new

    def _answer(self, index: int, item: Item, output: str | list[Item]) -> None:
        call_id = call_id_of(item)
        if item["type"] == TOOL_SEARCH_OUTPUT and item.get("call_id") is None:  # OpenAI's own searches have no ids.
            searches = (asked for asked, call in self._waiting.items() if call.name == ToolSearchTool.called)
            call_id = next(searches, call_id)
        call = self._waiting.pop(call_id, None)
        if call is None:
            why = "Another output for" if call_id in self._answered else "No tool call found for"
            raise invalid_value(
                f"{why} function call output with call_id {shorten(call_id)}.",
                f"input[{index - self._own_from}].call_id" if index >= self._own_from else "input",
            )
        call.output = output
        self._answered.add(call_id)

    def messages(self, instructions: str | None = None, *, may_wait: bool = False) -> list[Message]:
        """Return the messages, the instructions first.

        Raises:
            BadRequest: a call has no output, unless calls `may_wait` for theirs.
        """
        if may_wait:
            for call in self._waiting.values():
                call.output = NO_OUTPUT
        messages: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
        for entry in self._entries:
            messages += _render(entry) if isinstance(entry, _AssistantMessage) else [entry]
        return messages


def summary_message(summary: str) -> Message:
    """Return the message in which the model reads a summary of a conversation."""
    return {"role": "system", "content": _COMPACTED + summary}


def _call_of(item: Item) -> tuple[str, str]:
    return function_name(item["server_label"], item["name"]), item["arguments"]


def _error_of(item: Item) -> str:
    error = item.get("error")
    return f"{CALL_WENT_WRONG} {orjson.dumps(error).decode()}" if error else NO_OUTPUT


def _render(message: _AssistantMessage) -> list[Message]:
    """Return an assistant's message and the outputs of its calls. Raises BadRequest if a call has no output."""
    calls = [call for call in message.calls if call.is_whole or call.output is not None]
    for call in calls:
        if call.output is None and call.may_lack_output:
            call.output = NO_OUTPUT
        if call.output is None:
            raise BadRequest(f"No tool output found for function call {shorten(call.call_id)}.", param="input")
    text = "".join(message.text)
    if not text and not calls:
        return [{"role": "assistant", "content": ""}] if message.text else []
    rendered: Message = {"role": "assistant", "content": text or None}
    if message.reasoning:
        rendered["reasoning"] = "\n".join(message.reasoning)
    if not calls:
        return [rendered]
    rendered["tool_calls"] = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return [rendered, *({"role": "tool", "tool_call_id": call.call_id, "content": call.output} for call in calls)]


def drop_oldest_turns(messages: Sequence[Message], max_tokens: int) -> list[Message]:
    """Return messages of about `max_tokens` at most, without the oldest turns.

    A turn begins with a message of the user and ends before the next one. Instructions and the last turn always stay.
    """
    turns = _turns(messages)
    total = sum(tokens for _, tokens in turns)
    kept: list[Message] = []
    for index, (turn, tokens) in enumerate(turns):
        if total > max_tokens and index < len(turns) - 1:
            instructions = [message for message in turn if message["role"] in ("system", "developer")]
            kept += instructions
            total -= tokens - sum(map(message_tokens, instructions))
        else:
            kept += turn
    return kept


def _turns(messages: Sequence[Message]) -> list[tuple[list[Message], int]]:
    turns: list[list[Message]] = [[]]
    for message in messages:
        if message["role"] == "user" and turns[-1] and turns[-1][-1]["role"] != "user":
            turns.append([])
        turns[-1].append(message)
    return [(turn, sum(map(message_tokens, turn))) for turn in turns]


def message_tokens(message: Message) -> int:
    """Return about how many tokens a message takes."""
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content or () if "text" in part]
    images = 0 if isinstance(content, str) else sum(part["type"] == "image_url" for part in content or ())
    for call in message.get("tool_calls", ()):
        texts += [call["function"]["name"], call["function"]["arguments"]]
    return estimate_tokens(texts) + _MESSAGE_TOKENS + _IMAGE_TOKENS * images
