"""An engine's answer under a safety policy: held back until it is checked, ended where it breaks the policy.

It works on events and renders them itself, so that only checked text is sent.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from deployments.models.contract.engine import Engine, EngineRequest, EngineStream, Usage
from deployments.models.contract.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)
from deployments.models.contract.render import Renderer
from serve_app.operations.contract import GeneratedStream
from serve_app.operations.safety.policy import SafetyPolicy, find

_FILTERED: Literal["content_filter"] = "content_filter"


@dataclass(frozen=True, slots=True)
class Watched:
    """A request under a policy, with the parser of its pieces and the renderer of its answer."""

    request: EngineRequest
    prompt_text: str
    num_choices: int
    parse: Callable[[bytes], Sequence[Event]]
    renderer: Renderer


class SafeStream(GeneratedStream):
    """The answer of an engine, up to where it breaks the policy. A guard model may raise EngineDied or Unavailable."""

    def __init__(self, engine: Engine, policy: SafetyPolicy, watched: Watched) -> None:
        super().__init__()
        self._engine = engine
        self._policy = policy
        self._watched = watched
        self._choices = [HeldChoice(index, policy) for index in range(watched.num_choices)]
        self._stream: EngineStream | None = None

    async def _generate(self) -> AsyncGenerator[bytes]:
        watched = self._watched
        if await self._policy.prompt_breaks(watched.prompt_text, watched.request):
            events = [Finished("finished", choice.index, _FILTERED) for choice in self._choices]
            self.summary.finish_reasons = [_FILTERED] * watched.num_choices
            yield watched.renderer.events(events) + watched.renderer.finish(Usage())
            return
        self._stream = self._engine.run(watched.request)
        async for piece in self._stream:
            rendered = watched.renderer.events(await self._check(watched.parse(piece)))
            if rendered:
                yield rendered
            if all(choice.has_ended for choice in self._choices):
                break
        if any(choice.was_filtered for choice in self._choices):
            await self._stream.aclose()
        self._note_end()
        yield watched.renderer.finish(self.summary.usage or Usage())

    async def aclose(self) -> None:
        """Abort the generation if it still runs."""
        await super().aclose()
        if self._stream is not None:
            await self._stream.aclose()
            self.summary.usage, self.summary.queued_s = self._stream.summary.usage, self._stream.summary.queued_s

    def _note_end(self) -> None:
        assert self._stream is not None
        summary = self._stream.summary
        self.summary.usage, self.summary.queued_s = summary.usage, summary.queued_s
        reasons = summary.finish_reasons or [""] * len(self._choices)
        pairs = zip(self._choices, reasons, strict=False)
        self.summary.finish_reasons = [_FILTERED if choice.was_filtered else reason for choice, reason in pairs]

    async def _check(self, events: Sequence[Event]) -> list[Event]:
        if not self._policy.config.checks_answer:
            return self._pass(events)
        released: list[Event] = []
        for event in events:
            choice = self._choices[event.choice]
            if choice.has_ended:
                continue
            choice.add(event)
            question = choice.question()
            if question is not None and self._policy.guard is not None:
                choice.note_verdict(await self._policy.guard.objects(question, self._watched.request))
            released += choice.release()
        return released

    def _pass(self, events: Sequence[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, Finished):
                self._choices[event.choice].has_ended = True
        return list(events)


class HeldChoice:
    """The events of one choice, in order, each held until its text has been checked.

    All kinds of text are checked as one, with a line break where the kind changes. Positions count the characters of
    the choice.
    """

    def __init__(self, index: int, policy: SafetyPolicy) -> None:
        self.index = index
        self.has_ended = False
        self.was_filtered = False
        self._matcher = policy.matcher
        self._window = policy.config.window_chars
        self._guard_every = policy.config.guard_every_chars if policy.guard is not None else 0
        self._kept_chars = max(2 * self._window, policy.config.guard_max_chars if policy.guard is not None else 0)
        self._held: deque[tuple[int, int, Event]] = deque()
        self._tail = ""
        self._end = 0
        self._guarded_until = 0
        self._broken_at: int | None = None
        self._is_complete = False
        self._lane: tuple[str, int] | None = None

    def add(self, event: Event) -> None:
        """Add an event."""
        text = _text_of(event)
        if text:
            lane = (event.kind, getattr(event, "call", -1))
            if self._lane not in (None, lane):
                self._extend("\n")
            self._lane = lane
        start = self._end
        self._extend(text)
        self._held.append((start, self._end, event))
        self._is_complete = isinstance(event, Finished)

    def _extend(self, text: str) -> None:
        self._tail += text
        self._end += len(text)

    def question(self) -> str | None:
        """Return the text that the guard model must check now, None while it can wait."""
        unseen = self._end - self._guarded_until
        if not self._guard_every or not unseen or (unseen < self._guard_every and not self._is_complete):
            return None
        return self._tail

    def note_verdict(self, breaks: bool) -> None:
        """Note the guard model's verdict on the text so far."""
        if breaks:
            self._break_at(self._guarded_until)
        self._guarded_until = self._end

    def _break_at(self, position: int) -> None:
        self._broken_at = position if self._broken_at is None else min(position, self._broken_at)

    def release(self) -> list[Event]:
        """Return the events that may be sent now; after a breach, those before it and the end."""
        free_until = self._scan() if self._matcher is not None else self._end
        if self._guard_every:
            free_until = min(free_until, self._guarded_until)
        if self._broken_at is not None:
            free_until = min(free_until, self._broken_at)
        released = []
        while self._held and self._held[0][1] <= free_until and not self._is_barred(self._held[0][2]):
            released.append(self._held.popleft()[2])
        if self._broken_at is not None:
            released += self._cut(free_until)
            self.has_ended = self.was_filtered = True
            self._held.clear()
        elif released and isinstance(released[-1], Finished):
            self.has_ended = True
        self._trim()
        return released

    def _is_barred(self, event: Event) -> bool:
        return self._broken_at is not None and isinstance(event, Finished)

    def _cut(self, position: int) -> list[Event]:
        """Return the last events of a choice that broke the policy at a position."""
        cut: list[Event] = []
        if self._held:
            start, _, event = self._held[0]
            if start < position and isinstance(event, TextDelta | ReasoningDelta | ToolArgumentsDelta):
                cut.append(event._replace(text=event.text[: position - start]))
        cut.append(Finished("finished", self.index, _FILTERED))
        return cut

    def _scan(self) -> int:
        """Return the position before which no pattern matches, whatever text follows."""
        base = self._end - len(self._tail)
        match = find(self._matcher, self._tail)
        if match is None:
            return self._end if self._is_complete else self._end - self._window
        start, end = match
        may_grow = end == len(self._tail) and not self._is_complete and end - start < self._window
        if not may_grow:
            self._break_at(base + start)
            return base + start
        return min(base + start, self._end - self._window)

    def _trim(self) -> None:
        if len(self._tail) > 2 * self._kept_chars:
            self._tail = self._tail[-self._kept_chars :]


def _text_of(event: Event) -> str:
    if isinstance(event, TextDelta | ReasoningDelta | ToolArgumentsDelta):
        return event.text
    return event.name if isinstance(event, ToolCallStart) else ""
