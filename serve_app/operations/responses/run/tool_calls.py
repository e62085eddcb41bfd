"""Carries out the calls of the service's tools in one response, one after the other, within their bounds.

A call is in the journal before its tool runs; a call that the journal has already is never repeated.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from deployments.models.contract.engine import ToolUse, Usage
from deployments.steps import TOOL, TOOL_NAME, step
from serve_app.operations.responses.events.server_call import OpenTool, ServerCall, ToolEvent
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.journal import Journal
from serve_app.operations.responses.prompt.history import ServerRun
from serve_app.operations.responses.tools.contract import (
    CALL_FAILED,
    CUT,
    INTERRUPTED,
    NO_MORE_CALLS,
    TIME_IS_UP,
    CitingTool,
    RemoteTool,
    SendEvent,
    ToolAnswer,
    ToolBounds,
    ToolInUse,
    WritingTool,
)
from serve_app.schemas.responses.shell import container_of, named_container
from serve_app.telemetry.log import log_bug

Work = Callable[[Item, SendEvent], Coroutine[Any, Any, ToolAnswer]]
"""What a tool does for an item; it gets a function that sends events."""


class RunningTool:
    """A tool that runs in a task of its own; its events are in the journal before they are shown.

    `output`, the text for the model, `usage`, and the item that `follows` are known once `events` has ended.
    """

    def __init__(self, work: Work, opened: OpenTool, max_s: float, request_id: str, journal: Journal) -> None:
        self.output = CALL_FAILED
        self.usage: Usage | None = None
        self.follows: Item | None = None
        self.tells: Sequence[ToolEvent] = ()
        self._cites: Any = None
        self._opened = opened
        self._unsent: list[tuple[str, dict[str, Any]]] = []
        self._has_news = asyncio.Event()
        self._max_s = max_s
        self._request_id = request_id
        self._journal = journal
        self._task = asyncio.create_task(self._work(work))
        self._task.add_done_callback(lambda _: self._has_news.set())

    async def _work(self, work: Work) -> ToolAnswer:
        kind = str(self._opened.item.get("type", "tool")).removesuffix("_call")
        with step(f"{TOOL} {kind}", {TOOL_NAME: kind}):
            return await work(self._opened.item, self._send)

    def _send(self, kind: str, **fields: Any) -> None:
        self._unsent.append((kind, fields))
        self._has_news.set()

    async def events(self) -> AsyncGenerator[list[bytes]]:
        """Yield the tool's events until it has answered, failed, or exceeded its time."""
        deadline = asyncio.get_running_loop().time() + self._max_s
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._has_news.wait()
            except TimeoutError:
                self.output = TIME_IS_UP
                await self.stop()
            self._has_news.clear()
            unsent, self._unsent = self._unsent, []
            if unsent:  # Number events only when emitted, so a cancelled call leaves no gap.
                yield [self._write(kind, fields) for kind, fields in unsent]
            if self._task.done():
                break
        if self._task.cancelled():
            return
        error = self._task.exception()
        if error is not None:  # The model reads that the call failed, the log why.
            log_bug(self._request_id, error)
            return
        answer: ToolAnswer = self._task.result()
        self.output, self.usage, self._cites = answer.output, answer.usage, answer.cites
        self.follows, self.tells = answer.follows, answer.tells
        self._opened.finish(answer.item)

    def _write(self, kind: str, fields: dict[str, Any]) -> bytes:
        self._journal.write("told", event=kind, fields=fields)
        return self._opened.write_event(kind, **fields)

    def record_end(self, max_output_chars: int, spent_s: float) -> None:
        """Cut the output to the model's limit, and write the end of the call into the journal."""
        if len(self.output) > max_output_chars:
            self.output = self.output[:max_output_chars] + CUT
        usage = asdict(self.usage) if self.usage is not None else None
        done = {"item": self._opened.item, "output": self.output, "usage": usage, "cites": self._cites}
        self._journal.write("done", **done, spent_s=spent_s, follows=self.follows, tells=self.tells)

    async def stop(self) -> None:
        """Cancel the tool if it still runs, and wait until it has stopped."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


class ToolCalls:
    """Carries out calls. `runs` has their arguments and outputs by item id.

    `max_calls` is the client's bound, if there is one. `request_id` is for the log.
    """

    def __init__(
        self, state: ResponseState, journal: Journal, bounds: ToolBounds, max_calls: int | None, request_id: str
    ) -> None:
        self.runs: dict[str, ServerRun] = {}
        self._state = state
        self._journal = journal
        self._bounds = bounds
        self._max_calls = bounds.max_calls if max_calls is None else min(max_calls, bounds.max_calls)
        self._request_id = request_id
        self._num_calls = 0
        self._spent_s = 0.0

    @property
    def may_call(self) -> bool:
        """Whether the bounds leave room for another call."""
        return self._num_calls < self._max_calls and self._spent_s < self._bounds.max_s

    async def run(self, call: ServerCall, tool: ToolInUse, item: Item | None = None) -> AsyncGenerator[list[bytes]]:
        """Yield the events of a call as its tool sends them, and set `call.output`; `item` is its item, if any."""
        if not self.may_call:
            call.output = TIME_IS_UP if self._spent_s >= self._bounds.max_s else NO_MORE_CALLS
            return
        self._num_calls += 1
        was_begun = self._journal.read("call") is not None
        if not was_begun:
            self._journal.write("call", name=call.name)
        opened, events = self._open(call, tool, item)
        yield events + opened.end_writing()
        if was_begun:
            output, events = self._replay(tool, opened)
            yield events
        else:
            await self._journal.wait_kept()
            running = self._start(opened, lambda item, send: tool.run(item, call.name, call.arguments, send))
            async with aclosing(self._follow(running)) as batches:
                async for batch in batches:
                    yield batch
            output = running.output
        call.output = output
        self.runs[opened.item["id"]] = ServerRun(call.name, call.arguments, output)

    async def list_functions(self, tool: RemoteTool, item: Item) -> AsyncGenerator[list[bytes]]:
        """Yield the events of an item in which a remote tool lists its functions.

        They are not in the journal: a replayed response lists them again, because the tool must know them.
        """
        opened, events = self._state.open_tool(item)
        yield events
        async with aclosing(self._follow(self._start(opened, tool.list_functions, Journal()))) as batches:
            async for batch in batches:
                yield batch

    def _open(self, call: ServerCall, tool: ToolInUse, item: Item | None) -> tuple[OpenTool, list[bytes]]:
        """Return the call's item, and its events so far unless they were shown while the model wrote it."""
        if call.opened is not None:
            return call.opened, []
        item = item or tool.begin(call.name, call.arguments)
        opened, events = self._state.open_tool(item, tool.write(item) if isinstance(tool, WritingTool) else None)
        return opened, events + [event for piece in call.pieces for event in opened.write(piece)]

    def _replay(self, tool: ToolInUse, opened: OpenTool) -> tuple[str, list[bytes]]:
        """Return the output and the events of a call in the journal; without an end it was interrupted."""
        events: list[bytes] = []
        while (entry := self._journal.read("told")) is not None:
            events.append(opened.write_event(entry["event"], **entry["fields"]))
        done = self._journal.read("done")
        if done is None:
            return INTERRUPTED, events + self._state.close_item()
        opened.finish(done["item"])
        if isinstance(tool, CitingTool):
            tool.recall(done["cites"])
        self._spent_s += done["spent_s"]
        if done["usage"] is not None:
            self._state.count(Usage(**done["usage"]))
        events += self._state.close_item()
        return done["output"], events + self._show_following(done.get("follows"), done.get("tells") or ())

    def _start(self, opened: OpenTool, work: Work, journal: Journal | None = None) -> RunningTool:
        left_s = max(0.0, self._bounds.max_s - self._spent_s)
        return RunningTool(work, opened, left_s, self._request_id, journal or self._journal)

    async def _follow(self, running: RunningTool) -> AsyncGenerator[list[bytes]]:
        """Yield a tool's events and those that end its item; count its time and tokens."""
        started = time.perf_counter()
        try:
            async with aclosing(running.events()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            await running.stop()
            spent_s = time.perf_counter() - started
            self._spent_s += spent_s
        if running.usage is not None:
            self._state.count(running.usage)
        running.record_end(self._bounds.max_output_chars, spent_s)
        yield self._state.close_item() + self._show_following(running.follows, running.tells)

    def _show_following(self, item: Item | None, tells: Sequence[ToolEvent]) -> list[bytes]:
        """Return the events of the item that follows a call, if one does."""
        if item is None:
            return []
        opened, events = self._state.open_tool({**item, "status": "in_progress"})
        events += [opened.write_event(kind, **fields) for kind, fields in tells]
        opened.finish(item)
        return events + self._state.close_item()


def count_tool_use(items: Sequence[Item], before: Iterable[Item], tools: Iterable[object] | None) -> ToolUse:
    """Return how often a response used the service's tools, by its `items`.

    Containers that `before` used, or that one of the request's `tools` names, were not created by this response.
    """
    kinds = [item["type"] for item in items]
    named = {container_id for tool in tools or () if (container_id := named_container(tool)) is not None}
    begun = _containers(items) - named
    if begun:  # Conversations are long, and most use no container.
        begun -= _containers(before)
    return ToolUse(kinds.count("file_search_call"), kinds.count("web_search_call"), len(begun))


def _containers(items: Iterable[Item]) -> set[str]:
    return {container_id for item in items if (container_id := container_of(item)) is not None}
