"""The state machine of one response: events of the engine go in, a valid stream of events comes out.

    new -> begun -> (an item is open | none is) ... -> ended

For any events in any order: numbers have no gap, an item is finished before the next one begins, there is one terminal
event, its `output` is the list of the finished items, and nothing follows it. Does no input or output.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from operator import add
from types import MappingProxyType
from typing import Any, Literal

from deployments.models.contract.engine import Usage
from deployments.models.contract.events import Event, Logprobs, ToolCallStart
from serve_app.errors.api import SERVER_ERROR_MESSAGE
from serve_app.operations.responses.events.built_in_call import BuiltInCall
from serve_app.operations.responses.events.items import (
    MODELS_OWN,
    Cite,
    NewItems,
    OpenCall,
    OpenText,
    Status,
    call_item,
    message_item,
    reasoning_item,
)
from serve_app.operations.responses.events.reasoning import OpenReasoning
from serve_app.operations.responses.events.server_call import Follow, OpenTool, ServerCall, WrittenCall
from serve_app.operations.responses.events.writer import EventWriter, Item, new_id, usage_to_wire
from serve_app.schemas.responses.functions import ClientBuiltIn

ErrorCode = Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]

_NO_TOOLS: Mapping[str, Any] = MappingProxyType({})


class ResponseState:
    """The state of one response: `response` is the object so far, `usage` the sum of its generations.

    `items` are finished, in order; `cuts` records how each was chunked, so that `replay` can rebuild the stream.

    A call of one of the service's functions, which `use_tools` names, becomes an entry of `calls` instead of an item.
    If the first call of a generation is shown while the model writes it, it becomes an item too, which stays open until
    the call is carried out; the model's output after it waits for `take_later`. `new_items` gives each item its id and
    seal; with `shows_reasoning` the client sees the text of reasoning. Once the response has ended, every method
    returns no events.
    """

    def __init__(
        self,
        response: Item,
        new_items: NewItems | None = None,
        clock: Callable[[], float] = time.time,
        *,
        shows_reasoning: bool = True,
    ) -> None:
        self.response = response
        self.usage = Usage()
        self.calls: list[ServerCall] = []
        self.finish_reason: str | None = None
        self.has_ended = False
        self._new_items = new_items or NewItems()
        self._clock = clock
        self._shows_reasoning = shows_reasoning
        self._function_names = _NO_TOOLS
        self._in_namespaces: Mapping[str, tuple[str, str]] = _NO_TOOLS
        self._client_built_ins: Mapping[str, type[ClientBuiltIn]] = _NO_TOOLS
        self._cite: Cite = lambda _: []
        self._writer = EventWriter()
        self.cuts: list[Any] = []
        self.items: list[Item] = []
        self._open: OpenText | OpenReasoning | OpenCall | BuiltInCall | OpenTool | None = None
        self._call: int | None = None
        self._server_calls: dict[int, ServerCall] = {}
        self._follow: Follow = lambda _: None
        self._followed: int | None = None
        self._later: list[Event] = []

    def use_tools(self, names: Mapping[str, str], cite: Cite, follow: Follow) -> None:
        """Use these tools from now on: `names` maps every name that the model may use to a function."""
        self._function_names = names
        self._cite = cite
        self._follow = follow

    def use_functions(
        self, in_namespaces: Mapping[str, tuple[str, str]], built_ins: Mapping[str, type[ClientBuiltIn]] = _NO_TOOLS
    ) -> None:
        """Use these functions of the client from now on, each by its name for the model.

        `in_namespaces` has the namespace and the name of those in one, `built_ins` the tools that have items of their
        own.
        """
        self._in_namespaces = in_namespaces
        self._client_built_ins = built_ins

    def begin(self, *, queued: bool = False) -> list[bytes]:
        """Return the first events of a stream."""
        self.response["status"] = "queued" if queued else "in_progress"
        events = [self._writer.response("created", self.response)]
        if queued:
            events.append(self._writer.response("queued", self.response))
            return events
        return [*events, self._writer.response("in_progress", self.response)]

    def continue_at(self, number: int) -> None:
        """Continue the numbers after `number` events."""
        self._writer.number = number

    def progress(self) -> list[bytes]:
        """Return the event of a queued response that begins to run."""
        self.response["status"] = "in_progress"
        return [self._writer.response("in_progress", self.response)]

    def take(self, events: Sequence[Event]) -> list[bytes]:
        """Return the events that those of a generation cause; only the first choice counts.

        Arguments of a call that has ended or never began make the response fail.
        """
        written: list[bytes] = []
        for position, event in enumerate(events):
            if self.has_ended or self.finish_reason is not None or event.choice != 0:
                continue
            if event.kind == "finished":
                self.finish_reason = event.reason
            else:
                written += self._take(events, position)
        return written

    def _take(self, events: Sequence[Event], position: int) -> list[bytes]:
        """Return the events that one event causes; after a call whose item is open, none yet."""
        event = events[position]
        if self._followed is not None and (event.kind != "tool_arguments" or event.call != self._followed):
            self._later.append(event)
            return []
        match event.kind:
            case "text":
                following = events[position + 1] if position + 1 < len(events) else None
                return self._take_text(event.text, following.content if isinstance(following, Logprobs) else None)
            case "reasoning" if event.text:
                written, opened = self.open_reasoning()
                return written + opened.delta(event.text)
            case "tool_call":
                return self._open_call(event)
            case "tool_arguments":
                return self._take_arguments(event.call, event.text)
            case "logprobs" if position == 0 or events[position - 1].kind != "text":
                return self._take_text("", event.content)
        return []

    def take_later(self, status: Status = "completed") -> list[bytes]:
        """Return the events of the model's output after a call whose item was open.

        Another such call in it leaves its item open, and the output after it for later.
        """
        later, self._later = self._later, []
        written: list[bytes] = []
        for position in range(len(later)):
            if not self.has_ended:
                written += self._take(later, position)
        return written if self._followed is not None else written + self.close_item(status)

    def _take_text(self, text: str, logprobs: list[Any] | None = None) -> list[bytes]:
        if not text and not logprobs:
            return []
        events: list[bytes] = []
        opened = self._open
        if not isinstance(opened, OpenText):
            events = self.close_item()
            opened = self._open = self._new_message()
            events += opened.begin()
        return [*events, opened.delta(text, logprobs)]

    def open_reasoning(self) -> tuple[list[bytes], OpenReasoning]:
        """Begin a reasoning item unless one is open; return its first events, and the item."""
        if isinstance(self._open, OpenReasoning):
            return [], self._open
        events, new = self.close_item(), self._new_items
        place = reasoning_item(new.new_id), len(self.items)
        opened = self._open = OpenReasoning(self._writer, *place, new.seal_reasoning, shows_text=self._shows_reasoning)
        return events + opened.begin(), opened

    def _new_message(self) -> OpenText:
        return OpenText(self._writer, message_item(self._new_items.new_id), len(self.items), self._cite)

    def _open_call(self, start: ToolCallStart) -> list[bytes]:
        call, name = start.call, start.name
        events = self.close_item()
        self._call = call
        if name in self._function_names:
            name = self._function_names[name]
            written = self._follow(name) if not self.calls else None
            self._server_calls[call] = server_call = ServerCall(start.id, name)
            self.calls.append(server_call)
            if written is None:
                return events
            server_call.opened, begun = self.open_tool(written.item, written)
            self._followed = call
            return events + begun
        if name in self._client_built_ins:
            self._open = BuiltInCall(start.id, name, self._client_built_ins[name])
            return events
        return events + self._open_function(start)

    def _open_function(self, start: ToolCallStart) -> list[bytes]:
        namespace, name = self._in_namespaces.get(start.name, (None, start.name))
        item = call_item(self._new_items.new_id, start, name, namespace)
        self._open = OpenCall(self._writer, item, len(self.items))
        return [self._open.begin()]

    def _take_arguments(self, call: int, text: str) -> list[bytes]:
        if call in self._server_calls:
            self._server_calls[call].pieces.append(text)
            opened = self._server_calls[call].opened
            return opened.write(text) if opened is not None and call == self._followed else []
        if call != self._call or not isinstance(self._open, OpenCall | BuiltInCall):
            return self.fail("server_error", SERVER_ERROR_MESSAGE)
        if isinstance(self._open, BuiltInCall):
            self._open.pieces.append(text)
            return []
        return [self._open.delta(text)]

    def end_generation(self, usage: Usage | None) -> list[bytes]:
        """Return the events that end the open item, and count the usage of the generation.

        The item of a call stays open if the call can be carried out.
        """
        if usage is not None:
            self.count(usage)
        is_cut = self.finish_reason in ("length", "content_filter", None)
        if self._followed is not None and not is_cut:
            return []
        status: Status = "incomplete" if is_cut else "completed"
        return self.close_item(status) + self.take_later(status)

    def count(self, usage: Usage) -> None:
        """Add tokens to the usage of the response."""
        self.usage = Usage(*map(add, astuple(self.usage), astuple(usage)))

    def next_generation(self) -> list[ServerCall]:
        """Prepare for another generation; return the calls of the last one."""
        calls, self.calls, self.finish_reason, self._call = self.calls, [], None, None
        self._server_calls = {}
        return calls

    def open_tool(self, item: Item, written: WrittenCall | None = None) -> tuple[OpenTool, list[bytes]]:
        """Begin the item of a tool that the service runs; return it, and the events so far."""
        events = self.close_item()
        self._new_items.begin_tool(item)
        opened = self._open = OpenTool(self._writer, item, len(self.items), written)
        return opened, events + opened.begin()

    @property
    def opened_tool(self) -> OpenTool | None:
        """The open item, if it is a tool's."""
        return self._open if isinstance(self._open, OpenTool) else None

    def close_item(self, status: Status = "completed") -> list[bytes]:
        """Return the events that end the open item, if there is one."""
        opened, self._open, self._followed = self._open, None, None
        if opened is None:
            return []
        if isinstance(opened, BuiltInCall):
            return self._show_built_in(opened, status)
        events = opened.close(status)
        self.items.append(opened.item)
        self.cuts.append(opened.cuts)
        return events

    def _show_built_in(self, call: BuiltInCall, status: Status) -> list[bytes]:
        item = call.item(new_id) if status == "completed" else None
        if item is None:
            events = self._open_function(ToolCallStart("tool_call", 0, 0, call.call_id, call.name))
            if isinstance(self._open, OpenCall) and call.arguments:
                events.append(self._open.delta(call.arguments))
            return events + self.close_item(status)
        opened, events = self.open_tool(item)
        events += [opened.write_event(kind, **fields) for kind, fields in call.tool.call_events(item)]
        opened.finish({**item, "status": "completed"})
        return events + self.close_item()

    def end(self) -> list[bytes]:
        """Return the terminal event by the finish reason of the last generation; without one it has failed."""
        if self.has_ended:
            return []
        ended_well = self.finish_reason in ("stop", "tool_calls")
        is_cut_off = any(item.get("status") == "incomplete" for item in self.items if item["type"] in MODELS_OWN)
        if self.finish_reason is None or (ended_well and is_cut_off):
            return self.fail("server_error", SERVER_ERROR_MESSAGE)
        if ended_well and not self.items and self._open is None:
            return [*self._say_nothing(), *self._end("completed")]
        if self.finish_reason in ("length", "content_filter"):
            reason = "max_output_tokens" if self.finish_reason == "length" else "content_filter"
            self.response["incomplete_details"] = {"reason": reason}
            return self._end("incomplete")
        return self._end("completed")

    def end_without_output(self) -> list[bytes]:
        """Return the terminal event of a response without a generation."""
        return self._end("completed")

    def _say_nothing(self) -> list[bytes]:
        opened = self._open = self._new_message()
        return [*opened.begin(), *self.close_item()]

    def fail(self, code: ErrorCode, message: str) -> list[bytes]:
        """Return the events of a failed response."""
        if self.has_ended:
            return []
        self.response["error"] = {"code": code, "message": message}
        return self._end("failed")

    def cancel(self) -> list[bytes]:
        """Return the events of a cancelled response.

        No terminal event has that name: the stream ends as incomplete, with the response's status `cancelled`.
        """
        return self._end("incomplete", status="cancelled")

    def fail_instead(self, message: str) -> list[bytes]:
        """Return the terminal event of a response that could not be stored.

        It replaces the one before, which must not have been sent.
        """
        self.has_ended = False
        self._writer.number -= 1
        self.response["incomplete_details"] = None
        return self.fail("server_error", message)

    def _end(self, kind: str, status: str | None = None) -> list[bytes]:
        if self.has_ended:
            return []
        events = self.close_item("completed" if kind == "completed" else "incomplete")
        self.has_ended = True
        self.response |= {
            "status": status or kind,
            "completed_at": int(self._clock()) if kind == "completed" else None,
            "output": self.items,
            "usage": usage_to_wire(self.usage),
        }
        return [*events, self._writer.response(kind, self.response)]
