"""A call of a tool that the service runs, at work beside the stream that tells of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from deployments.models.contract.engine import Usage
from serve_app.operations.responses.events.server_call import OpenTool
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.resume.journal import Journal
from serve_app.operations.responses.tools.contract import CALL_FAILED, TIME_IS_UP, Tell, ToolAnswer
from serve_app.telemetry.log import log_bug

Work = Callable[[Item, Tell], Coroutine[Any, Any, ToolAnswer]]
"""What a tool does about an item, given how to tell of it."""


class RunningTool:
    """A tool at work, in a task of its own; its events are handed on as they come, and noted in the journal."""

    def __init__(self, work: Work, opened: OpenTool, max_s: float, request_id: str, journal: Journal) -> None:
        self.output = CALL_FAILED
        self.usage: Usage | None = None
        self.cites: Any = None
        self._opened = opened
        self._told: list[tuple[str, dict[str, Any]]] = []
        self._has_news = asyncio.Event()
        self._max_s = max_s
        self._request_id = request_id
        self._journal = journal
        self._task = asyncio.create_task(work(opened.item, self._tell))
        self._task.add_done_callback(lambda _: self._has_news.set())

    def _tell(self, kind: str, **fields: Any) -> None:
        self._told.append((kind, fields))
        self._has_news.set()

    async def events(self) -> AsyncIterator[list[bytes]]:
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
            told, self._told = self._told, []
            if told:  # Numbered only now: of a call that is stopped, none is missing.
                yield [self._show(kind, fields) for kind, fields in told]
            if self._task.done():
                break
        if self._task.cancelled():
            return
        error = self._task.exception()
        if error is not None:  # The model is told that the call failed; why is for the log.
            log_bug(self._request_id, error)
            return
        answer: ToolAnswer = self._task.result()
        self.output, self.usage, self.cites = answer.output, answer.usage, answer.cites
        self._opened.finish(answer.item)

    def _show(self, kind: str, fields: dict[str, Any]) -> bytes:
        self._journal.write("told", event=kind, fields=fields)
        return self._opened.tell(kind, **fields)

    async def stop(self) -> None:
        """Cancel the tool if it still works, and wait until it has stopped."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
