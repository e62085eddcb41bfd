"""Runs one response: generations of the model, and between them the calls of tools that the service carries out.

Yields the events as they are made. Keeps nothing, and knows neither HTTP nor the database.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field

from deployments.models.contract.engine import EngineStream, Usage
from deployments.models.contract.errors import EngineError, RequestRejected
from deployments.models.contract.render import parse_events
from serve_app.errors.api import SERVER_ERROR_MESSAGE, ApiError
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.chat import ChatOperation
from serve_app.operations.responses.events.server_call import OpenTool, ServerCall
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.prompt.dialect import GenerationChat, create_chat_request, translated
from serve_app.operations.responses.prompt.history import ServerRun, drop_oldest_turns, message_tokens
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.resume.journal import EmittedEvents, Journal
from serve_app.operations.responses.run.running_tool import RunningTool, Work
from serve_app.operations.responses.tools.contract import (
    CUT,
    INTERRUPTED,
    NO_MORE_CALLS,
    TIME_IS_UP,
    CitingTool,
    Tell,
    ToolAnswer,
    ToolBounds,
    ToolInUse,
    WritingTool,
)
from serve_app.telemetry.log import log_bug

_MAX_TRIMS = 12


@dataclass(slots=True)
class _ToolTime:
    """What is left of the bounds on tools."""

    num_calls: int = 0
    spent_s: float = 0.0


@dataclass(slots=True)
class _Heard:
    """What a generation said that the next one must know."""

    text: list[str] = field(default_factory=list)


class ResponseRun:
    """One response on its way. `state.response` is the object as it stands, `runs` what tools of the service did.

    One that was on its way before, as `journal` tells, and of which there is something that was `shown`, becomes what
    it was before it goes on.
    """

    def __init__(
        self,
        turn: Turn,
        chat: ChatOperation,
        bounds: ToolBounds,
        clock: Callable[[], float] = time.time,
        first_chat: GenerationChat | None = None,
        journal: Journal | None = None,
        shown: EmittedEvents | None = None,
    ) -> None:
        self.turn = turn
        shown = shown or EmittedEvents()
        seal = shown.seal(turn.seal_reasoning) if turn.seal_reasoning is not None else None
        self.state = ResponseState(
            turn.response, new_id=shown.new_id, clock=clock, seal_reasoning=seal, begin_tool=shown.put_into
        )
        self._journal = journal or Journal()
        self._tools = turn.tools
        self._use_tools()
        self.runs: dict[str, ServerRun] = {}
        self._chat = chat
        self._bounds = bounds
        self._tool_time = _ToolTime()
        self._messages = list(turn.messages)
        self._next_chat = first_chat
        self._heard = _Heard()
        self._stream: EngineStream | None = None
        self._num_generations = 0
        self._num_items_before = 0

    def _use_tools(self) -> None:
        tools = self._tools
        self.state.use_tools(tools.names, tools.cite, lambda name: tools.follow(name) if self._may_call() else None)

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

    async def events(self, lead: list[bytes]) -> AsyncGenerator[list[bytes]]:
        """Yield the events as they come, `lead` before the first of them; the terminal event comes alone, at the end.

        Raises:
            ApiError, EngineError: the model refused or failed before it said anything; nothing has been yielded.
        """
        has_begun = False
        try:
            async with aclosing(self._run()) as batches:
                async for batch in batches:
                    if not has_begun:
                        batch, has_begun = lead + batch, True
                    if batch:
                        yield batch
        except EngineError as error:
            if not has_begun:
                raise translated(error) from error
            yield self._fail_as(translate_engine_error(translated(error)))
            return
        except ApiError as error:
            if not has_begun:
                raise
            yield self._fail_as(error)
            return
        except Exception as error:
            if not has_begun:
                raise
            log_bug(self.turn.request_id, error)
            yield self._fail(SERVER_ERROR_MESSAGE)
            return
        finally:
            await self._tools.close()
        if not self.state.has_ended:
            ending = self.state.end() if self.turn.is_generated else self.state.end_without_output()
            yield ([] if has_begun else lead) + ending

    def _fail(self, message: str) -> list[bytes]:
        return self._end_generation() + self.state.fail("server_error", message)

    def _fail_as(self, error: ApiError) -> list[bytes]:
        """Return the events of a failure; what is wrong with a prompt is the caller's as long as it is theirs alone."""
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
        may_call = self._may_call()
        while True:
            async with aclosing(self._generate(may_call)) as batches:
                async for batch in batches:
                    yield batch
            if self.state.has_ended:
                return
            await self._tools.check()  # The model may have said nothing.
            yield self._end_generation()
            if not may_call or not self.state.calls or self.state.finish_reason not in ("stop", "tool_calls"):
                return
            reason = self.state.finish_reason
            outputs: list[tuple[ServerCall, str]] = []
            async with aclosing(self._call_all(outputs)) as batches:
                async for batch in batches:
                    yield batch
            if self.state.has_ended:
                return
            if self._is_client_next(reason):
                self.state.finish_reason = reason
                return
            self._remember(outputs)
            may_call = self._may_call()

    async def _call_all(self, outputs: list[tuple[ServerCall, str]]) -> AsyncGenerator[list[bytes]]:
        """Carry out the calls that a generation has left, or ask the client about them; what it said after one too."""
        calls = self.state.next_generation()
        while calls:
            call = calls.pop(0)
            question = None
            if call.opened is None and self._may_call():
                question = self._tools.ask_approval(call.name, call.arguments)
            if question is not None:
                _, events = self.state.open_tool(question)
                yield events + self.state.close_item()
                continue
            async with aclosing(self._call(call, self._tools.find(call.name), outputs)) as batches:
                async for batch in batches:
                    yield batch
            if call.opened is not None:
                yield self.state.take_later()
                if self.state.has_ended:
                    return
                calls += self.state.next_generation()

    def _is_client_next(self, reason: str) -> bool:
        """Say whether the last generation has left something for the client to do."""
        kinds = {item["type"] for item in self.state.items[self._num_items_before :]}
        return "mcp_approval_request" in kinds or (reason == "tool_calls" and "function_call" in kinds)

    async def _prepare(self) -> AsyncGenerator[list[bytes]]:
        """Have remote tools list their functions, and carry out the calls that the client has approved."""
        outputs: list[tuple[ServerCall, str]] = []
        for tool in self._tools.remote:
            item = tool.begin_list()
            if item is not None:
                await self._tools.check()
                opened, events = self.state.open_tool(item)
                yield events
                # Not for the journal: who makes the response again asks again, since the tool must know its functions.
                async with aclosing(self._work(opened, tool.list_functions, [], Journal())) as batches:
                    async for batch in batches:
                        yield batch
                self._tools.offer()
                self._use_tools()
                self._next_chat = None
            for approved in tool.approved():
                await self._tools.check()
                call = ServerCall(f"call_{approved.item['id']}", approved.name, [approved.arguments])
                async with aclosing(self._call(call, tool, outputs, approved.item)) as batches:
                    async for batch in batches:
                        yield batch
        if outputs:
            self._remember(outputs)
            self._next_chat = None

    def _may_call(self) -> bool:
        """Say whether the bounds leave room for another call."""
        return self._tool_time.num_calls < self._max_calls() and self._tool_time.spent_s < self._bounds.max_s

    def _max_calls(self) -> int:
        wanted = self.turn.request.max_tool_calls
        return self._bounds.max_calls if wanted is None else min(wanted, self._bounds.max_calls)

    def _end_generation(self) -> list[bytes]:
        usage = self._stream.summary.usage if self._stream is not None else None
        self._stream = None
        return self.state.end_generation(usage)

    async def _generate(self, may_call: bool) -> AsyncGenerator[list[bytes]]:
        """Yield the events of one generation; where the conversation is too long and may be cut, of a shorter one."""
        self._heard = _Heard()
        self._num_items_before = len(self.state.items)
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
        """Take away some of the oldest turns; return whether there were any."""
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
        )
        self._tools.begin_check()  # The model is asked first.
        try:
            async for piece in stream:
                if not piece:
                    continue
                said = parse_events(piece)
                if not self._tools.is_checked:
                    await self._tools.check()
                if self._tools.names:
                    self._heard.text += [event.text for event in said if event.kind == "text"]
                yield self.state.take(said)
                if self.state.has_ended:
                    return
        finally:
            await stream.aclose()

    async def _call(
        self, call: ServerCall, tool: ToolInUse, outputs: list[tuple[ServerCall, str]], item: Item | None = None
    ) -> AsyncGenerator[list[bytes]]:
        """Carry a tool's call out; yield its item's events, and put what the model is to be told into `outputs`."""
        if not self._may_call():
            is_late = self._tool_time.spent_s >= self._bounds.max_s
            outputs.append((call, TIME_IS_UP if is_late else NO_MORE_CALLS))
            return
        self._tool_time.num_calls += 1
        told: list[str] = []

        async def run(item: Item, tell: Tell) -> ToolAnswer:
            return await tool.run(item, call.name, call.arguments, tell)

        was_begun = self._journal.read("call") is not None
        if not was_begun:
            self._journal.write("call", name=call.name)
        opened = call.opened
        events: list[bytes] = []
        if opened is None:
            item = item or tool.begin(call.name, call.arguments)
            opened, events = self.state.open_tool(item, tool.write(item) if isinstance(tool, WritingTool) else None)
            events += [event for piece in call.pieces for event in opened.write(piece)]
        yield events + opened.end_writing()
        if was_begun:
            yield self._repeat(tool, opened, told)
        else:
            await self._journal.wait_kept()
            async with aclosing(self._work(opened, run, told, self._journal)) as batches:
                async for batch in batches:
                    yield batch
        outputs.append((call, told[0]))
        self.runs[self.state.items[-1]["id"]] = ServerRun(call.name, call.arguments, told[0])

    def _repeat(self, tool: ToolInUse, opened: OpenTool, told: list[str]) -> list[bytes]:
        """Return the events of a call that the journal tells of; nobody knows what came of one that has no end."""
        events: list[bytes] = []
        while (entry := self._journal.read("told")) is not None:
            events.append(opened.tell(entry["event"], **entry["fields"]))
        done = self._journal.read("done")
        if done is None:
            told.append(INTERRUPTED)
            return events + self.state.close_item()
        opened.finish(done["item"])
        if isinstance(tool, CitingTool):
            tool.recall(done["cites"])
        self._tool_time.spent_s += done["spent_s"]
        if done["usage"] is not None:
            self.state.count(Usage(**done["usage"]))
        told.append(done["output"])
        return events + self.state.close_item()

    async def _work(
        self, opened: OpenTool, work: Work, told: list[str], journal: Journal
    ) -> AsyncGenerator[list[bytes]]:
        """Have a tool work on an item; yield the item's events, and put the text for the model into `told`."""
        left_s = max(0.0, self._bounds.max_s - self._tool_time.spent_s)
        running = RunningTool(work, opened, left_s, self.turn.request_id, journal)
        started = time.perf_counter()
        try:
            async for batch in running.events():
                yield batch
        finally:
            await running.stop()
            spent_s = time.perf_counter() - started
            self._tool_time.spent_s += spent_s
        if running.usage is not None:
            self.state.count(running.usage)
        output = running.output
        if len(output) > self._bounds.max_output_chars:
            output = output[: self._bounds.max_output_chars] + CUT
        told.append(output)
        usage = asdict(running.usage) if running.usage is not None else None
        journal.write("done", item=opened.item, output=output, usage=usage, cites=running.cites, spent_s=spent_s)
        yield self.state.close_item()

    def _remember(self, outputs: list[tuple[ServerCall, str]]) -> None:
        """Add what was said and what the tools answered to the conversation."""
        calls = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call, _ in outputs
        ]
        text = "".join(self._heard.text)
        self._messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
        self._messages += [
            {"role": "tool", "tool_call_id": call.call_id, "content": output} for call, output in outputs
        ]
