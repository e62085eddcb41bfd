"""The calls of the service's tools in one response: carried out one after the other, within the bounds of all of them.

`loop` calls it between two generations. A call is in the journal before its tool runs; one that the journal has already
is read from there and never made again.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from deployments.models.contract.engine import Usage
from serve_app.operations.responses.events.server_call import OpenTool, ServerCall
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.prompt.history import ServerRun
from serve_app.operations.responses.resume.journal import Journal
from serve_app.operations.responses.run.running_tool import RunningTool, Work
from serve_app.operations.responses.tools.contract import (
    INTERRUPTED,
    NO_MORE_CALLS,
    TIME_IS_UP,
    CitingTool,
    RemoteTool,
    ToolBounds,
    ToolInUse,
    WritingTool,
)


class ToolCalls:
    """Carries out calls. `runs` holds, by item id, what each one asked and what its tool answered.

    `max_calls` is the client's own bound, if there is one. `request_id` is for the log.
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
        """Yield the events of a call as its tool sends them; `call.output` is then the text for the model.

        `item` is the new item of a call that has one already.
        """
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

        They are not in the journal: a response that is made again lists them again, since the tool must know them.
        """
        opened, events = self._state.open_tool(item)
        yield events
        async with aclosing(self._follow(self._start(opened, tool.list_functions, Journal()))) as batches:
            async for batch in batches:
                yield batch

    def _open(self, call: ServerCall, tool: ToolInUse, item: Item | None) -> tuple[OpenTool, list[bytes]]:
        """Return the call's item, and the events that show what the model wrote, where it was not shown as written."""
        if call.opened is not None:
            return call.opened, []
        item = item or tool.begin(call.name, call.arguments)
        opened, events = self._state.open_tool(item, tool.write(item) if isinstance(tool, WritingTool) else None)
        return opened, events + [event for piece in call.pieces for event in opened.write(piece)]

    def _replay(self, tool: ToolInUse, opened: OpenTool) -> tuple[str, list[bytes]]:
        """Return the output and the events of a call that the journal has; without an end it was interrupted."""
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
        return done["output"], events + self._state.close_item()

    def _start(self, opened: OpenTool, work: Work, journal: Journal | None = None) -> RunningTool:
        left_s = max(0.0, self._bounds.max_s - self._spent_s)
        return RunningTool(work, opened, left_s, self._request_id, journal or self._journal)

    async def _follow(self, running: RunningTool) -> AsyncGenerator[list[bytes]]:
        """Yield a tool's events and those that end its item; count the time and the tokens that it took."""
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
        yield self._state.close_item()
