"""Runs one response: generations of the model, and between them the calls of tools that the service carries out.

`prompt` has prepared the turn, `events` writes what is yielded here. Knows neither HTTP nor the database.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass, field
from operator import add

from deployments.models.contract.engine import EngineStream, ToolUse, Usage
from deployments.models.contract.errors import EngineError, RequestRejected
from deployments.models.contract.events import Event
from deployments.models.contract.render import parse_events
from deployments.patience import USUAL, Patience
from deployments.state.responses.values import StoredTurn
from serve_app.errors.api import SERVER_ERROR_MESSAGE, ApiError
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.chat import ChatOperation
from serve_app.operations.responses.events.server_call import ServerCall
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.journal import EmittedEvents, Journal
from serve_app.operations.responses.prompt.compaction import Compaction, compacted
from serve_app.operations.responses.prompt.dialect import (
    GenerationChat,
    callable_functions,
    create_chat_request,
    summary_chat,
    translated,
)
from serve_app.operations.responses.prompt.history import drop_oldest_turns, message_tokens
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.run.asking import ask
from serve_app.operations.responses.run.summary import STYLES, ReasoningSummary
from serve_app.operations.responses.run.tool_calls import ToolCalls, count_tool_use
from serve_app.operations.responses.storage import without_opened_text
from serve_app.operations.responses.tools.contract import ToolBounds
from serve_app.schemas.responses.tools import is_clients_call
from serve_app.telemetry.log import log_bug

_MAX_TRIMS = 12


@dataclass(slots=True)
class _Generation:
    """What one generation leaves for the next: its text, and the calls that the service carried out."""

    num_items_before: int = 0
    text: list[str] = field(default_factory=list)
    calls: list[ServerCall] = field(default_factory=list)


class ResponseRun:
    """The run of one response. `state.response` is the object so far, `runs` has the calls of tools by item id.

    If `journal` has entries, the run first replays them, with the ids, seals and items of the `emitted` events.
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
        patience: Patience = USUAL,
    ) -> None:
        self.turn = turn
        journal, wanted = journal or Journal(), turn.request.reasoning_summary
        new_items = (emitted or EmittedEvents()).items(turn.seal_reasoning)
        # A client that gets a summary, and the reasoning sealed, need not get it as text too.
        shows_reasoning = wanted is None or turn.seal_reasoning is None
        self.state = ResponseState(turn.response, new_items, clock, shows_reasoning=shows_reasoning)
        self._summary = (
            ReasoningSummary(STYLES[wanted], turn, chat, self.state, journal, patience.summary_s) if wanted else None
        )
        self._tools = turn.tools
        self._calls = ToolCalls(self.state, journal, bounds, turn.request.max_tool_calls, turn.request_id)
        self.runs = self._calls.runs
        self._use_tools()
        self._chat = chat
        self._messages = list(turn.messages)
        self._next_chat = first_chat
        self._generation = _Generation()  # Approved calls are carried out as if after a generation.
        self._stream: EngineStream | None = None
        self._num_generations = 0
        self._queued_s: float | None = None
        self._lead: list[bytes] = []
        self._has_begun = False

    def _use_tools(self) -> None:
        tools = self._tools
        self.state.use_tools(tools.names, tools.cite, lambda name: tools.follow(name) if self._calls.may_call else None)
        self.state.use_functions(tools.client.in_namespaces, tools.client.built_ins)

    def stored_turn(self) -> StoredTurn:
        """Return the response as it is stored."""
        runs = {item_id: [one.name, one.arguments, one.output] for item_id, one in self.runs.items()}
        return StoredTurn(self.state.response, without_opened_text(self.turn.input), runs, self.state.cuts)

    def usage(self) -> Usage | None:
        """Return the tokens used so far, None if no model has been asked."""
        running = self._stream.summary.usage if self._stream is not None else None
        if running is None:
            return self.state.usage if self.state.usage.total_tokens else None
        return Usage(*map(add, astuple(self.state.usage), astuple(running)))

    @property
    def queued_s(self) -> float | None:
        """How long the first generation was queued, in seconds; None if unknown."""
        if self._queued_s is None and self._stream is not None and self._num_generations == 1:
            self._queued_s = self._stream.summary.queued_s
        return self._queued_s

    def tool_use(self) -> ToolUse:
        """Return how often the service's tools were used so far."""
        return count_tool_use(self.state.items, [*self.turn.before.items, *self.turn.input], self.turn.request.tools)

    def begin(self) -> list[bytes]:
        """Return the first events, unless the stream has begun. From now on a failure is an event too."""
        lead, self._lead, self._has_begun = self._lead, [], True
        return lead

    async def events(self, lead: list[bytes]) -> AsyncGenerator[list[bytes]]:
        """Yield `lead`, then the events as they come; the terminal event comes alone, at the end.

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
            failure = translated(error, callable_functions(self.turn))
            if not self._has_begun:
                raise failure from error
            yield self._fail(translate_engine_error(failure))
            return
        except Exception as error:
            if not self._has_begun:
                raise
            if not isinstance(error, ApiError):
                log_bug(self.turn.request_id, error)
            yield self._fail(error if isinstance(error, ApiError) else ApiError())
            return
        finally:
            await self._tools.close()
        if not self.state.has_ended:
            ending = self.state.end() if self.turn.is_generated else self.state.end_without_output()
            yield self.begin() + ending

    def cancel(self) -> list[bytes]:
        """Return the events of a cancelled run, none where it has ended."""
        return [] if self.state.has_ended else self._end_generation() + self.state.cancel()

    def _fail(self, error: ApiError) -> list[bytes]:
        """Return the events of a failure; a bad prompt is the client's fault only while it has no output of tools."""
        if error.status != 400:
            return self._end_generation() + self.state.fail("server_error", error.message)
        if self._num_generations > 1:
            return self._end_generation() + self.state.fail("server_error", SERVER_ERROR_MESSAGE)
        return self._end_generation() + self.state.fail("invalid_prompt", error.message)

    async def _run(self) -> AsyncGenerator[list[bytes]]:
        if not self.turn.is_generated:
            await self._tools.check()
            return
        async with aclosing(self._prepare()) as batches:
            async for batch in batches:
                yield batch
        if self.turn.compaction is not None and self.turn.compaction.is_whole_response:
            return
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

    async def _compact(self, compaction: Compaction) -> AsyncGenerator[list[bytes]]:
        """Have the model sum up the conversation, which goes on after the summary."""
        summary: list[str] = []
        async with aclosing(self._ask(self._next_chat or summary_chat(self.turn, self._messages))) as batches:
            async for events in batches:
                summary += [event.text for event in events if event.kind == "text"]
        self._next_chat = None
        ended = self._end_generation()
        _, added = self.state.open_tool(compaction.item("".join(summary)))
        yield ended + added + self.state.close_item()
        self._messages = compacted(self._messages, "".join(summary))
        if compaction.is_whole_response:
            self.state.finish_reason = "stop"

    async def _call_tools(self) -> AsyncGenerator[list[bytes]]:
        """Carry out the calls of a generation, or ask the client about them.

        Also yields the model's output after a call, which has to wait for it.
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
        """Return whether the last generation needs the client: for an approval or a call that it carries out."""
        written = self.state.items[self._generation.num_items_before :]
        return any(item["type"] == "mcp_approval_request" for item in written) or (
            reason == "tool_calls" and any(map(is_clients_call, written))
        )

    async def _prepare(self) -> AsyncGenerator[list[bytes]]:
        """Let remote tools list their functions, carry out the calls that the client approved, compact what is long."""
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
        compaction = self.turn.compaction
        if compaction is not None and compaction.is_due(self._messages):
            async with aclosing(self._compact(compaction)) as batches:
                async for batch in batches:
                    yield batch

    def _end_generation(self) -> list[bytes]:
        usage = self._stream.summary.usage if self._stream is not None else None
        self._queued_s, self._stream = self.queued_s, None
        return self.state.end_generation(usage)

    async def _generate(self, may_call: bool) -> AsyncGenerator[list[bytes]]:
        """Yield the events of one generation; a conversation that is too long is shortened first where it may be."""
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
        is_shorter, self._messages = len(shorter) < len(self._messages), shorter
        return is_shorter

    async def _generate_once(self, may_call: bool) -> AsyncGenerator[list[bytes]]:
        chat, self._next_chat = self._next_chat, None
        if chat is None:
            offered = self._tools.offered if may_call else ()
            chat = create_chat_request(self.turn, self._messages, offered, may_force=not self.runs and may_call)
        async with aclosing(self._ask(chat)) as batches:
            async for events in batches:
                if self._tools.names:
                    self._generation.text += [event.text for event in events if event.kind == "text"]
                if self._summary is None:
                    yield self.state.take(events)
                else:
                    async with aclosing(self._summary.take(events)) as written:
                        async for batch in written:
                            yield batch
                if self.state.has_ended:
                    return

    async def _ask(self, chat: GenerationChat) -> AsyncGenerator[Sequence[Event]]:
        self._num_generations += 1
        name = f"-{self._num_generations}" if self._num_generations > 1 else ""
        self._stream = stream = ask(self.turn, self._chat, chat, name)
        self._tools.begin_check()  # The model is asked first.
        try:
            async for piece in stream:
                if piece:
                    if not self._tools.is_checked:
                        await self._tools.check()
                    yield parse_events(piece)
        finally:
            await stream.aclose()

    def _extend_conversation(self) -> None:
        """Add the generation's text, its calls and their outputs to the messages for the next one."""
        calls = self._generation.calls
        asked = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        self._messages.append(
            {"role": "assistant", "content": "".join(self._generation.text) or None, "tool_calls": asked}
        )
        self._messages += [{"role": "tool", "tool_call_id": call.call_id, "content": call.output} for call in calls]
