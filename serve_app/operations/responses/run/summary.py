"""The summary of a response's reasoning: the model itself writes it, a part for each section of the reasoning.

While a part is written the model goes on with its answer, whose events wait: a client reads a part as soon as its
section has ended, and the answer is later by the last part alone. A summary that fails or takes too long ends there,
and the answer goes on without it.

A section that is no longer than its part may be is shown as it is: agents mostly reason briefly at each step, and that
costs neither tokens nor time. `auto` means `concise`: agents ask for it at every step to show what goes on, and a few
sentences do that at the least cost.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import orjson

from deployments.models.contract.engine import EngineStream
from deployments.models.contract.errors import EngineError
from deployments.models.contract.events import Event
from deployments.models.contract.render import parse_events
from serve_app.operations.chat import ChatOperation
from serve_app.operations.responses.events.reasoning import OpenReasoning
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.journal import Journal, JournalMismatch
from serve_app.operations.responses.prompt.dialect import GenerationChat, check_chat
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.run.asking import ask
from serve_app.schemas.base import estimate_tokens
from serve_app.telemetry.log import log_bug

_ASKED: Final = (
    " Write in its language, in the first person, as the one who reasons. Begin with a title of two to five words"
    " between ** and **. Write only the summary."
)
_INSTRUCTIONS_TOKENS = 64
_CHARS = 4
"""Of a token, in most texts. Sections are bounded by their characters."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a summary is written: its instructions, and the bounds of a section and of its part in tokens."""

    instructions: str
    section_tokens: int
    part_tokens: int

    def section_of(self, context_tokens: int) -> int:
        """Return the bound of a section, in tokens: the context of the model must hold one."""
        return min(self.section_tokens, context_tokens // 4)

    def most_tokens(self, reasoning_tokens: int, context_tokens: int) -> int:
        """Return how many tokens a summary may take, prompts included, by those of the reasoning."""
        num_parts = math.ceil(reasoning_tokens / self.section_of(context_tokens))
        return reasoning_tokens + num_parts * (_INSTRUCTIONS_TOKENS + self.part_tokens)


_CONCISE = Style("Summarize the reasoning that follows in one to three sentences." + _ASKED, 4096, 200)
_DETAILED = Style("Summarize the reasoning that follows, step by step, with what it found." + _ASKED, 1024, 400)
STYLES: Final = {"auto": _CONCISE, "concise": _CONCISE, "detailed": _DETAILED}


class ReasoningSummary:
    """Summarizes the reasoning of one response; `most_s` bounds the time of each part."""

    def __init__(
        self, style: Style, turn: Turn, chat: ChatOperation, state: ResponseState, journal: Journal, most_s: float
    ) -> None:
        self._style = style
        self._turn = turn
        self._chat = chat
        self._state = state
        self._journal = journal
        self._most_s = most_s
        self._section: list[str] = []
        self._num_chars = 0
        self._section_chars = _CHARS * style.section_of(turn.engine.card.max_model_len)
        self._num_asked = 0
        self._has_failed = False

    async def take(self, events: Sequence[Event]) -> AsyncGenerator[list[bytes]]:
        """Yield what the events of a generation cause, and the summary of each section before what follows it."""
        begun = 0
        for position, event in enumerate(events):
            if event.choice == 0 and event.kind == "reasoning":
                self._section.append(event.text)
                self._num_chars += len(event.text)
                if self._num_chars < self._section_chars:
                    continue
                end = position + 1
            elif self._section and _follows(event):
                end = position
            else:
                continue
            yield self._state.take(events[begun:end])
            begun = end
            async with aclosing(self._summarize()) as batches:
                async for batch in batches:
                    yield batch
        yield self._state.take(events[begun:])

    async def _summarize(self) -> AsyncGenerator[list[bytes]]:
        """Yield the events of the parts for the section so far."""
        text, self._section, self._num_chars = "".join(self._section).strip(), [], 0
        if not text or self._state.has_ended:
            return
        _, opened = self._state.open_reasoning()
        length = math.ceil(len(text) / max(1, len(text) // self._section_chars))  # One piece may have many sections.
        for start in range(0, len(text), length):
            section = text[start : start + length]
            if estimate_tokens([section]) <= self._style.part_tokens:
                yield opened.summarize(section) + opened.end_part()
            elif not self._has_failed:
                async with aclosing(self._write_part(section, opened)) as batches:
                    async for batch in batches:
                        yield batch

    async def _write_part(self, section: str, opened: OpenReasoning) -> AsyncGenerator[list[bytes]]:
        """Yield the events of one part while the model writes it; nothing that goes wrong is raised."""
        deadline = asyncio.get_running_loop().time() + self._most_s
        stream = self._ask(section)
        try:
            pieces = aiter(stream)
            while True:
                async with asyncio.timeout_at(deadline):
                    piece = await anext(pieces, None)
                if piece is None:
                    break
                text = "".join(event.text for event in parse_events(piece) if event.kind == "text")
                if text:
                    yield opened.summarize(text)
        except TimeoutError:
            await stream.aclose()
            stream.summary.finish_reasons = []
            self._journal.end(stream.summary.usage, [])
        except JournalMismatch:
            raise
        except Exception as error:
            if not isinstance(error, EngineError):
                log_bug(self._turn.request_id, error)
            stream.summary.finish_reasons = []
        finally:
            await stream.aclose()
            usage = stream.summary.usage
            if usage is not None:
                self._state.count(replace(usage, reasoning_tokens=usage.completion_tokens))
        self._has_failed = not stream.summary.finish_reasons
        yield opened.end_part()

    def _ask(self, section: str) -> EngineStream:
        turn = self._turn
        self._num_asked += 1
        chat = {
            "model": turn.request.model,
            "messages": [{"role": "system", "content": self._style.instructions}, {"role": "user", "content": section}],
            "temperature": 0.0,
            "max_completion_tokens": self._style.part_tokens,
            "reasoning_effort": "none",
            "stream": turn.is_stream,
        }
        checked = GenerationChat(check_chat(chat, ()), orjson.dumps(chat))
        return ask(turn, self._chat, checked, f"-summary-{self._num_asked}")


def _follows(event: Event) -> bool:
    """Return whether an event comes after the end of the reasoning, which was not cut off."""
    match event.kind:
        case "text":
            return event.choice == 0 and bool(event.text)
        case "finished":
            return event.choice == 0 and event.reason in ("stop", "tool_calls")
        case kind:
            return event.choice == 0 and kind == "tool_call"
