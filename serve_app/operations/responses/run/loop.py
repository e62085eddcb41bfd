"""Runs one response: generations of the model, and between them the calls of tools that the service carries out.

The walk comes from `prompt`, which has prepared the turn, and goes on in `events`, which writes what is yielded here.
Yields events and keeps nothing; knows neither HTTP nor the database.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from deployments.models.contract.engine import EngineStream, ToolUse, Usage
from deployments.models.contract.errors import EngineError, RequestRejected
from deployments.models.contract.render import parse_events
from deployments.state.responses.values import StoredTurn
from serve_app.errors.api import SERVER_ERROR_MESSAGE, ApiError
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.chat import ChatOperation
from serve_app.operations.responses.events.server_call import ServerCall
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.prompt.dialect import GenerationChat, create_chat_request, translated
from serve_app.operations.responses.prompt.history import ServerRun, drop_oldest_turns, message_tokens
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.resume.journal import EmittedEvents, Journal
from serve_app.operations.responses.run.tool_calls import ToolCalls
from serve_app.operations.responses.run.tool_use import count_tool_use
from serve_app.operations.responses.storage.items import without_opened_text
from serve_app.operations.responses.tools.contract import ToolBounds
from serve_app.telemetry.log import log_bug

_MAX_TRIMS = 12


@dataclass(slots=True)
class _Generation:
    """What the next generation must know of one: its text, and the calls that the service carried out."""

    num_items_before: int = 0
    text: list[str] = field(default_factory=list)
    calls: list[ServerCall] = field(default_factory=list)


class ResponseRun:
    """One response on its way. `state.response` is the object as it stands.

    If `journal` has entries, the run first replays them: ids, seals and items of events already `emitted` are used
    again.
    """

    def __init__(
        self,
        turn: Turn,
        chat: ChatOperation,
        bounds: ToolBounds,
        clock: Callable[[], float] = time.time,
        first_chat: GenerationChat | None = None,
        journal: Journal | None = None,
        emitted: EmittedEvents | None = None,
    ) -> None:
        self.turn = turn
        self.state = ResponseState(turn.response, (emitted or EmittedEvents()).items(turn.seal_reasoning), clock)
        self._tools = turn.tools
        self._calls = ToolCalls(self.state, journal or Journal(), bounds, turn.request.max_tool_calls, turn.request_id)
        self._use_tools()
        self._chat = chat
        self._messages = list(turn.messages)
        self._next_chat = first_chat
        self._generation = _Generation()  # Calls that the client has approved are made as if after one.
        self._stream: EngineStream | None = None
        self._num_generations = 0
        self._queued_s: float | None = None
        self._lead: list[bytes] = []
        self._has_begun = False

    def _use_tools(self) -> None:
        tools = self._tools
        self.state.use_tools(tools.names, tools.cite, lambda name: tools.follow(name) if self._calls.may_call else None)

    @property
    def runs(self) -> dict[str, ServerRun]:
        """The calls of the service's tools, by item id."""
        return self._calls.runs

    def stored_turn(self) -> StoredTurn:
        """Return the response as it is stored."""
        runs = {item_id: [one.name, one.arguments, one.output] for item_id, one in self.runs.items()}
        return StoredTurn(self.state.response, without_opened_text(self.turn.input), runs, self.state.cuts)

    def usage(self) -> Usage | None:
        """Return the tokens used so far, None if no model has been asked."""
        running = self._stream.summary.usage if self._stream is not None else None
        if running is None:
            return self.state.usage if self.state.usage.total_tokens else None
        total = self.state.usage
        return Usage(
            prompt_tokens=total.prompt_tokens + running.prompt_tokens,
            completion_tokens=total.completion_tokens + running.completion_tokens,
            cached_tokens=total.cached_tokens + running.cached_tokens,
            reasoning_tokens=total.reasoning_tokens + running.reasoning_tokens,
        )

    @property
    def queued_s(self) -> float | None:
        """How long the first generation waited for its first step, in seconds; None where that is not known."""
        if self._queued_s is None and self._stream is not None and self._num_generations == 1:
            self._queued_s = self._stream.summary.queued_s
        return self._queued_s

    def tool_use(self) -> ToolUse:
        """Return how often the service's tools were used so far."""
        return count_tool_use(self.state.items, [*self.turn.before.items, *self.turn.input], self.turn.request.tools)

    def begin(self) -> list[bytes]:
        """Return the events that come before all others, unless it has begun. From now on a failure is an event too."""
        lead, self._lead, self._has_begun = self._lead, [], True
        return lead

    async def events(self, lead: list[bytes]) -> AsyncGenerator[list[bytes]]:
        """Yield the events as they come, `lead` before the first of them; the terminal event comes alone, at the end.

        Raises:
            ApiError, EngineError: the model refused or failed before its first event; nothing has been yielded.
        """
        self._lead = lead
        try:
            async with aclosing(self._run()) as batches:
                async for batch in batches:
                    batch = self.begin() + batch
                    if batch:
                        yield batch
        except EngineError as error:
            if not self._has_begun:
                raise translated(error, self.turn.request) from error
            yield self._fail_as(translate_engine_error(translated(error, self.turn.request)))
            return
        except ApiError as error:
            if not self._has_begun:
                raise
            yield self._fail_as(error)
            return
        except Exception as error:
            if not self._has_begun:
                raise
            log_bug(self.turn.request_id, error)
            yield self._fail(SERVER_ERROR_MESSAGE)
            return
        finally:
            await self._tools.close()
        if not self.state.has_ended:
            ending = self.state.end() if self.turn.is_generated else self.state.end_without_output()
            yield self.begin() + ending

    def cancel(self) -> list[bytes]:
        """Return the events of a run that was stopped, with what it used so far; none where it has ended."""
        return [] if self.state.has_ended else self._end_generation() + self.state.cancel()

    def _fail(self, message: str) -> list[bytes]:
        return self._end_generation() + self.state.fail("server_error", message)

    def _fail_as(self, error: ApiError) -> list[bytes]:
        """Return the events of a failure; a prompt is the client's fault only while it has nothing of tools in it."""
        if error.status != 400:
            return self._fail(error.message)
        if self._num_generations > 1:
            return self._fail(SERVER_ERROR_MESSAGE)
        return self._end_generation() + self.state.fail("invalid_prompt", error.message)

    async def _run(self) -> AsyncGenerator[list[bytes]]:
        if not self.turn.is_generated:
            await self._tools.check()
            return
        async with aclosing(self._prepare()) as batches:
            async for batch in batches:
                yield batch
        may_call = self._calls.may_call
        while True:
            async with aclosing(self._generate(may_call)) as batches:
                async for batch in batches:
                    yield batch
            if self.state.has_ended:
                return
            await self._tools.check()  # There may have been no event.
            yield self._end_generation()
            reason = self.state.finish_reason
            if not may_call or not self.state.calls or reason not in ("stop", "tool_calls"):
                return
            async with aclosing(self._call_tools()) as batches:
                async for batch in batches:
                    yield batch
            if self.state.has_ended:
                return
            if self._is_client_next(reason):
                self.state.finish_reason = reason
                return
            self._extend_conversation()
            may_call = self._calls.may_call

    async def _call_tools(self) -> AsyncGenerator[list[bytes]]:
        """Carry out the calls that a generation has left, or ask the client about them.

        Yields also the model's output after a call, which had to wait for it.
        """
        calls = self.state.next_generation()
        while calls:
            call = calls.pop(0)
            question = None
            if call.opened is None and self._calls.may_call:
                question = self._tools.ask_approval(call.name, call.arguments)
            if question is not None:
                _, events = self.state.open_tool(question)
                yield events + self.state.close_item()
                continue
            async with aclosing(self._calls.run(call, self._tools.find(call.name))) as batches:
                async for batch in batches:
                    yield batch
            self._generation.calls.append(call)
            if call.opened is not None:
                yield self.state.take_later()
                if self.state.has_ended:
                    return
                calls += self.state.next_generation()

    def _is_client_next(self, reason: str) -> bool:
        """Return whether the last generation has left something for the client to do."""
        kinds = {item["type"] for item in self.state.items[self._generation.num_items_before :]}
        return "mcp_approval_request" in kinds or (reason == "tool_calls" and "function_call" in kinds)

    async def _prepare(self) -> AsyncGenerator[list[bytes]]:
        """Let remote tools list their functions, and carry out the calls that the client has approved."""
        for tool in self._tools.remote:
            item = tool.begin_list()
            if item is not None:
                await self._tools.check()
                async with aclosing(self._calls.list_functions(tool, item)) as batches:
                    async for batch in batches:
                        yield batch
                self._tools.offer()
                self._use_tools()
                self._next_chat = None
            for approved in tool.approved():
                await self._tools.check()
                call = ServerCall(f"call_{approved.item['id']}", approved.name, [approved.arguments])
                async with aclosing(self._calls.run(call, tool, approved.item)) as batches:
                    async for batch in batches:
                        yield batch
                self._generation.calls.append(call)
        if self._generation.calls:
            self._extend_conversation()
            self._next_chat = None

    def _end_generation(self) -> list[bytes]:
        usage = self._stream.summary.usage if self._stream is not None else None
        self._queued_s = self.queued_s
        self._stream = None
        return self.state.end_generation(usage)

    async def _generate(self, may_call: bool) -> AsyncGenerator[list[bytes]]:
        """Yield the events of one generation; a conversation that is too long and may be cut is shortened first."""
        self._generation = _Generation(len(self.state.items))
        for trim in range(_MAX_TRIMS):
            is_last = trim == _MAX_TRIMS - 1 or self.turn.request.truncation != "auto"
            try:
                async with aclosing(self._generate_once(may_call)) as batches:
                    async for batch in batches:
                        yield batch
            except RequestRejected as error:
                if is_last or error.code != "context_length_exceeded" or not self._trim():
                    raise
            else:
                return

    def _trim(self) -> bool:
        """Drop some of the oldest turns; return whether there were any."""
        total = sum(map(message_tokens, self._messages))
        shorter = drop_oldest_turns(self._messages, total * 3 // 4)
        is_shorter = len(shorter) < len(self._messages)
        self._messages = shorter
        return is_shorter

    async def _generate_once(self, may_call: bool) -> AsyncGenerator[list[bytes]]:
        turn = self.turn
        self._num_generations += 1
        number = self._num_generations
        chat, self._next_chat = self._next_chat, None
        if chat is None:
            offered = self._tools.offered if may_call else ()
            chat = create_chat_request(turn, self._messages, offered, may_force=not self.runs and may_call)
        self._stream = stream = self._chat.run_as_events(
            turn.engine,
            chat.body,
            chat.raw,
            turn.principal,
            request_id=turn.request_id if number == 1 else f"{turn.request_id}-{number}",
            priority=turn.priority,
            service_tier=turn.service_tier,
        )
        self._tools.begin_check()  # The model is asked first.
        try:
            async for piece in stream:
                if not piece:
                    continue
                events = parse_events(piece)
                if not self._tools.is_checked:
                    await self._tools.check()
                if self._tools.names:
                    self._generation.text += [event.text for event in events if event.kind == "text"]
                yield self.state.take(events)
                if self.state.has_ended:
                    return
        finally:
            await stream.aclose()

    def _extend_conversation(self) -> None:
        """Add the generation's text, its calls and what the tools answered to the messages for the next one."""
        calls = self._generation.calls
        text = "".join(self._generation.text)
        asked = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        self._messages.append({"role": "assistant", "content": text or None, "tool_calls": asked})
        self._messages += [{"role": "tool", "tool_call_id": call.call_id, "content": call.output} for call in calls]
