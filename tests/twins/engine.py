"""Twins of the engine and the model directory: they keep the contracts and do what a script says."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deployments.models.contract.engine import Engine, EngineRequest, ModelCard, Summary, Usage
from deployments.models.contract.errors import EngineError
from deployments.models.contract.steps import Written, pack_step, unpack

CHAT = frozenset({"chat", "completions"})


def model_card(model_id: str, *operations: str, **overrides: object) -> ModelCard:
    """Return a card with the given operations, chat and completions where none are named."""
    values: dict[str, object] = {
        "id": model_id,
        "operations": frozenset(operations) or CHAT,
        "max_model_len": 4096,
        "created": 1_700_000_000,
        "owned_by": "manta",
        **overrides,
    }
    return ModelCard(**values)  # type: ignore[arg-type]


class Noted(NamedTuple):
    """A piece of a stream's only choice, with the tokens that made it."""

    token_ids: list[int]
    piece: bytes


def written_of(request: EngineRequest) -> list[list[int]]:
    """Return the tokens after which a request's only choice continues."""
    return Written(unpack(request.written)).groups_of(0)


@dataclass
class Script:
    """What one request meets, in order: bytes to yield, events to wait for, errors to raise.

    `usage` is reported at the end; also after an abort, as `usage_when_aborted`.
    """

    steps: Sequence[bytes | Noted | asyncio.Event | BaseException] = ()
    usage: Usage | None = field(default_factory=lambda: Usage(prompt_tokens=7, completion_tokens=3))
    usage_when_aborted: Usage | None = None
    finish_reasons: Sequence[str] = ("stop",)
    queued_s: float | None = None


class ScriptedStream:
    """One answer of a scripted engine."""

    def __init__(self, script: Script, request: EngineRequest) -> None:
        self.summary = Summary()
        self.request = request
        self.num_pieces = 0
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.is_aborted = False
        self.is_complete = False
        self._script = script
        self._pieces: AsyncGenerator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._pieces = self._play()
        return self._pieces

    async def _play(self) -> AsyncGenerator[bytes]:
        self.started.set()
        try:
            for number, step in enumerate(self._script.steps, 1):
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, BaseException):
                    raise step
                else:
                    self.num_pieces += 1
                    if isinstance(step, Noted):
                        self.summary.written += pack_step(0, step.token_ids)
                    piece = step.piece if isinstance(step, Noted) else step
                    if number == len(self._script.steps):
                        self._sum_up()
                    if piece:
                        yield piece
            self._sum_up()
            self.is_complete = True
        except EngineError:
            if self.num_pieces:
                self.summary.usage = self._script.usage_when_aborted
            self.is_complete = True
            raise
        finally:
            self.ended.set()

    def _sum_up(self) -> None:
        self.summary.usage = self._script.usage
        self.summary.finish_reasons = list(self._script.finish_reasons)
        self.summary.queued_s = self._script.queued_s

    async def aclose(self) -> None:
        if self._pieces is not None:
            await self._pieces.aclose()
        if not self.is_complete:
            self.is_aborted = True
            if self.summary.usage is None:
                self.summary.usage = self._script.usage_when_aborted
        self.ended.set()


class ScriptedEngine:
    """An engine that answers every request with what `script` returns for it."""

    def __init__(self, card: ModelCard, script: Callable[[EngineRequest], Script]) -> None:
        self.card = card
        self.script = script
        self.streams: list[ScriptedStream] = []

    @property
    def requests(self) -> list[EngineRequest]:
        """Every request that was run, oldest first."""
        return [stream.request for stream in self.streams]

    def run(self, request: EngineRequest) -> ScriptedStream:
        stream = ScriptedStream(self.script(request), request)
        self.streams.append(stream)
        return stream


class MemoryDirectory:
    """A directory over engines held in memory."""

    def __init__(self, engines: Sequence[Engine], aliases: dict[str, str] | None = None) -> None:
        self._engines = {engine.card.id: engine for engine in engines}
        self._aliases = aliases or {}

    def find(self, model_id: str) -> Engine | None:
        return self._engines.get(self._aliases.get(model_id, model_id))

    def cards(self) -> list[ModelCard]:
        return [engine.card for engine in self._engines.values()]
