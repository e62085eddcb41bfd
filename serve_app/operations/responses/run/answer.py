"""The answer of a foreground response: its events, or one object.

The response is stored before the client sees that it has ended.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import orjson

from deployments.patience import USUAL
from deployments.state.responses.store import ResponseStore
from deployments.state.responses.values import StoredTurn
from deployments.steps import STORAGE, step
from deployments.waiting import finish
from serve_app.errors.capacity import StoresAway
from serve_app.operations.contract import GeneratedStream
from serve_app.operations.responses.events.writer import DONE, Item, frame, usage_from_wire
from serve_app.operations.responses.prompt.reading import RememberedResponse
from serve_app.operations.responses.run.loop import ResponseRun
from serve_app.telemetry.log import log_bug

NOT_STORED = "The response was generated, but could not be stored. Please retry your request."


class ResponseAnswer(GeneratedStream):
    """Runs a response in the foreground: its pieces are server-sent events, or the response object as one.

    `prepare` returns the run; it is called at the first iteration, so that a batch line can wait for its turn.
    `on_failure` is called when a stream ends as failed, which only its last event shows. `find_stored` looks for the
    stored response of another try of the request, which is then not run again. A stream begins after `begins_s`, even
    if the model is silent.

    Raises:
        ApiError: something that the request refers to is missing; before the first piece.
        EngineError: the model refused or failed before its first event.
    """

    def __init__(
        self,
        prepare: Callable[[], Awaitable[ResponseRun]],
        store: ResponseStore,
        *,
        is_stream: bool,
        on_failure: Callable[[], None] = lambda: None,
        find_stored: Callable[[], Awaitable[StoredTurn | None]] | None = None,
        begins_s: float = USUAL.response_begins_s,
    ) -> None:
        super().__init__()
        self._prepare = prepare
        self._store = store
        self._is_stream = is_stream
        self._on_failure = on_failure
        self._find_stored = find_stored
        self._begins_s = begins_s
        self._run: ResponseRun | None = None

    def _generate(self) -> AsyncGenerator[bytes]:
        return self._frames() if self._is_stream else self._body()

    async def _frames(self) -> AsyncGenerator[bytes]:
        async with aclosing(self.events()) as events:
            async for event in events:
                yield frame(event)
        yield DONE

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield the events as they come, the last one once the response is stored. Raises what iterating it raises."""
        run = self._run = await self._prepare()
        async with aclosing(_begun_within(self._begins_s, run)) as batches:
            async for batch in batches:
                if not run.state.has_ended:
                    for event in batch:
                        yield event
                    continue
                for event in batch[:-1]:
                    yield event
                self._settle()
                if await self._keep(run) is None:
                    batch = run.state.fail_instead(NOT_STORED)
                if run.state.response["status"] == "failed":
                    self._on_failure()
                yield batch[-1]

    def remember(self) -> RememberedResponse | None:
        """Return the state for the next request, None if the response did not end well."""
        run = self._run
        if run is None or run.state.response["status"] not in ("completed", "incomplete"):
            return None
        before = run.turn.before
        items = [*before.items, *run.turn.input, *run.state.items]
        return RememberedResponse(run.state.response["id"], items, {**before.runs, **run.runs})

    async def _body(self) -> AsyncGenerator[bytes]:
        first = None if self._find_stored is None else await self._find_stored()
        if first is not None:
            self.summary.usage = usage_from_wire(first.response["usage"])
            yield orjson.dumps(first.response)
            return
        run = self._run = await self._prepare()
        async with aclosing(run.events(run.state.begin())) as batches:
            async for _ in batches:
                pass
        self._settle()
        stored = await self._keep(run)
        if stored is None:
            raise StoresAway(NOT_STORED)
        if stored is not run.state.response:
            self.summary.usage = usage_from_wire(stored["usage"])
            self._run = None  # Its usage is not that of the answer.
        yield orjson.dumps(stored)

    async def _keep(self, run: ResponseRun) -> Item | None:
        """Store the response if it must be; return the one to answer with, None if storing failed.

        If another try of the request stored its response first, that is the answer.
        """
        response = run.state.response
        expires_at = run.turn.expires_at
        if expires_at is None:
            return response
        try:
            with step(STORAGE):
                saving = self._store.save(
                    run.turn.principal.account,
                    run.stored_turn(),
                    expires_at=expires_at,
                    conversation_id=run.turn.conversation_id,
                    is_streamed=self._is_stream,
                )
                stored = await finish(saving)
        except Exception as error:  # Whatever the reason, the client must not continue from here.
            log_bug(run.turn.request_id, error)
            return None
        return stored.response

    def _settle(self) -> None:
        if self._run is not None:
            self.summary.usage = self._run.usage()
            self.summary.tool_use = self._run.tool_use()
            self.summary.queued_s = self._run.queued_s
            self.summary.finish_reasons = [self._run.state.finish_reason or ""]

    async def aclose(self) -> None:
        """Abort the run; `summary` then has its usage so far."""
        await super().aclose()
        self._settle()


async def _begun_within(most_s: float, run: ResponseRun) -> AsyncGenerator[list[bytes]]:
    """Yield a run's events; the first ones come after `most_s` at the latest."""
    async with aclosing(run.events(run.state.begin())) as batches:
        first = asyncio.ensure_future(anext(batches))
        try:
            await asyncio.wait([first], timeout=most_s)
            if not first.done():
                yield run.begin()
            yield await first
        finally:
            first.cancel()
            await asyncio.wait([first])
        async for batch in batches:
            yield batch
