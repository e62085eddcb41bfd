"""A tool at work for one call, in a task of its own beside the stream that shows its events.

`tool_calls` starts it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import asdict
from typing import Any

from deployments.models.contract.engine import Usage
from deployments.steps import TOOL, TOOL_NAME, step
from serve_app.operations.responses.events.server_call import OpenTool
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.resume.journal import Journal
from serve_app.operations.responses.tools.contract import CALL_FAILED, CUT, TIME_IS_UP, SendEvent, ToolAnswer
from serve_app.telemetry.log import log_bug

Work = Callable[[Item, SendEvent], Coroutine[Any, Any, ToolAnswer]]
"""What a tool does for an item, given a way to send events."""


class RunningTool:
    """A tool at work; its events are in the journal before they are shown.

    `output`, the text for the model, and `usage` are known once `events` has ended.
    """

    def __init__(self, work: Work, opened: OpenTool, max_s: float, request_id: str, journal: Journal) -> None:
        self.output = CALL_FAILED
        self.usage: Usage | None = None
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
        """Yield the tool's events until it has answered, failed, or used its time up."""
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
        if error is not None:  # The model reads that the call failed; why is for the log.
            log_bug(self._request_id, error)
            return
        answer: ToolAnswer = self._task.result()
        self.output, self.usage, self._cites = answer.output, answer.usage, answer.cites
        self._opened.finish(answer.item)

    def _write(self, kind: str, fields: dict[str, Any]) -> bytes:
        self._journal.write("told", event=kind, fields=fields)
        return self._opened.write_event(kind, **fields)

    def record_end(self, max_output_chars: int, spent_s: float) -> None:
        """Cut the output to what the model may read, and write into the journal how the call ended."""
        if len(self.output) > max_output_chars:
            self.output = self.output[:max_output_chars] + CUT
        usage = asdict(self.usage) if self.usage is not None else None
        self._journal.write(
            "done", item=self._opened.item, output=self.output, usage=usage, cites=self._cites, spent_s=spent_s
        )

    async def stop(self) -> None:
        """Cancel the tool if it still works, and wait until it has stopped."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
