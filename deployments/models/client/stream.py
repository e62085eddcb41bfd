"""The answer to one request over the side channel, which continues on another replica when its engine dies.

`RemoteEngine` creates one for each request. Before the first piece, another replica runs the request from the start.
Later, it continues after the last token that came: the notes of the pieces list the tokens
(`deployments.models.contract.steps`). The reader sees only a pause.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from deployments import steps
from deployments.channel.client import ChannelStream
from deployments.channel.errors import ChannelError
from deployments.models.contract.engine import EngineRequest, Summary, Usage
from deployments.models.contract.errors import EngineDied, EngineError, Overloaded, from_channel
from deployments.models.contract.steps import Written, unpack
from deployments.steps import are_noted, note, step

if TYPE_CHECKING:
    from deployments.models.client.remote import RemoteEngine

MAX_TRIES: Final = 4
"""How many replicas are asked to run a request before the first one dies with it."""

MAX_DEATHS: Final = 4
"""How many engines may die with a request without progress: the request may be the cause."""

PROGRESS_BYTES: Final = 8 * 12
"""Notes of eight tokens. A request that kills each engine after its first token makes no progress."""


class RemoteStream:
    """The answer to one request; an `EngineStream`."""

    def __init__(self, engine: "RemoteEngine", request: EngineRequest) -> None:
        self.summary = Summary()
        self._engine = engine
        self._request = request
        self._created = int(time.time())
        self._stream: ChannelStream | None = None
        self._tries = Tries(engine)
        self._has_sent = False
        self._opened_at: float | None = None
        self._first_at: float | None = None
        self._is_over = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the answer; wire pieces that arrive together are joined."""
        began = time.perf_counter()
        written = self.summary.written
        is_joined = self._request.render == "wire"
        try:
            while pieces := await self._read():
                notes = self._stream.notes if self._stream is not None else []
                if self._stream is not None and self._stream.summary:  # These are the last pieces.
                    self._take_summary(self._stream)
                if is_joined and len(pieces) > 1:
                    pieces, notes = [b"".join(pieces)], [b"".join(notes)]
                for piece, note in zip(pieces, notes, strict=True):
                    written += note
                    if piece:
                        if not self._has_sent:
                            self._has_sent, self._first_at = True, time.perf_counter()
                        yield piece
            self._is_over = True
        except EngineError:
            self._is_over = True
            raise
        finally:
            if self._stream is not None:
                self._stream.cancel()
                self._take_summary(self._stream)
            self._note_steps(began, time.perf_counter())

    def _note_steps(self, began: float, ended: float) -> None:
        """Note the spans of the engine: the whole call, and its known parts."""
        if not are_noted():
            return
        request, usage = self._request, self.summary.usage or Usage()
        name = steps.OPERATION_NAMES.get(request.operation, str(request.operation))
        attributes: dict[str, str | int | float] = {
            steps.OPERATION: name,
            steps.REQUEST_MODEL: self._engine.card.id,
            steps.INPUT_TOKENS: usage.prompt_tokens,
            steps.OUTPUT_TOKENS: usage.completion_tokens,
        }
        if self._tries.num_losses:
            attributes[steps.NUM_LOSSES] = self._tries.num_losses
        note(f"{name} {self._engine.card.id}", began, ended, attributes)
        queued_s, opened = self.summary.queued_s, self._opened_at
        if opened is None or self._first_at is None:
            return
        prefilled_from = opened
        if queued_s is not None:
            prefilled_from = min(opened + queued_s, self._first_at)
            note(steps.QUEUE, opened, prefilled_from)
        if request.stream:  # A whole answer comes in one piece, so it does not show when its first token was ready.
            note(steps.PREFILL, prefilled_from, self._first_at)
            note(steps.DECODE, self._first_at, ended)

    async def _read(self) -> list[bytes]:
        """Return the next pieces, from another replica if this one has died; none at the end."""
        while True:
            try:
                stream = self._stream or await self._open()
                pieces = await _read(stream)
            except (Overloaded, EngineDied) as error:
                if self._has_sent and not self.summary.written:
                    raise
                was_reached, self._stream = self._stream is not None, None
                await self._tries.note(error, was_reached=was_reached, num_written=len(self.summary.written))
            else:
                self._tries.note_pieces()
                return pieces

    async def _open(self) -> ChannelStream:
        try:
            async with asyncio.timeout_at(self._tries.deadline):
                with step(steps.ROUTING):
                    self._stream = await self._engine.open(self._request, self._header(), self._tries.tried)
        except TimeoutError:
            raise Overloaded("No replica came up in time to go on with the request.") from None
        if self._opened_at is None:
            self._opened_at = time.perf_counter()
        return self._stream

    def _header(self) -> dict[str, Any]:
        request = self._request
        header: dict[str, Any] = {
            "operation": request.operation,
            "request_id": request.request_id,
            "created": self._created,
            "stream": request.stream,
            "render": request.render,
            "cache_salt": request.cache_salt,
            "priority": request.priority,
            "takes_notes": True,
            "written": unpack(request.written + self.summary.written),
        }
        if request.service_tier != "default":
            header["service_tier"] = request.service_tier
        if request.adapter is not None:
            header["adapter"] = request.adapter
        return header

    def _take_summary(self, stream: ChannelStream) -> None:
        reported = stream.summary
        if "usage" in reported:
            self.summary.usage = Usage(*reported["usage"])
            self.summary.finish_reasons = reported["finish_reasons"]
            self.summary.queued_s = reported.get("queued_s")

    async def aclose(self) -> None:
        """Abort the generation if it still runs; `summary` then has its usage so far."""
        if self._stream is not None:
            self._stream.cancel()
            await self._stream.wait_end(self._engine.patience.usage_s)
            self._take_summary(self._stream)
        if not self._is_over and self.summary.written:
            self._count_written()

    def _count_written(self) -> None:
        """Count at least the tokens that came: a replica that has just taken over counts fewer, or none."""
        written = Written(unpack(self._request.written + self.summary.written))
        usage = self.summary.usage
        if usage is None:
            usage = self.summary.usage = Usage(
                sum(prompt.num_tokens for prompt in written.prompts.values()),
                cached_tokens=sum(prompt.num_cached for prompt in written.prompts.values()),
            )
        usage.completion_tokens = max(usage.completion_tokens, written.num_tokens)


class Tries:
    """The replicas that a request has tried, and whether it tries more.

    `tried` are the replicas to leave out, the last one at the end. `deadline` is when the request gives up, by the
    event loop's clock; None until a replica has died. `num_losses` replicas have died with it.
    """

    def __init__(self, engine: "RemoteEngine") -> None:
        self.tried: list[str] = []
        self.deadline: float | None = None
        self.num_losses = 0
        self._engine = engine
        self._dead: list[str] = []
        self._num_tries = 0
        self._num_deaths = 0
        self._written_at_death = 0
        self._refusal: EngineError | None = None

    async def note(self, error: EngineError, *, was_reached: bool, num_written: int) -> None:
        """Note a failed try, and return when it is time for the next one; raises the error if there is none.

        `was_reached`: a replica got the request.
        """
        now = asyncio.get_running_loop().time()
        if isinstance(error, EngineDied):
            self._refusal = error
            if was_reached:
                self._count_death(error, num_written)
            if self.deadline is None:
                self.deadline = now + self._engine.resume_wait_s
            return
        # The error of a replica is more useful than the lack of another one.
        self._refusal = self._refusal or error
        if self.deadline is None:
            self._num_tries += 1
            if not self.tried or self._num_tries == MAX_TRIES:
                raise self._refusal
            return
        if was_reached:  # It is full. Another may have a place at once.
            return
        if now + self._engine.patience.full_s > self.deadline:
            raise self._refusal
        await asyncio.sleep(self._engine.patience.full_s)
        # A replica that was full may have a place now, and one whose connection was cut may be back.
        self.tried = self._dead.copy()

    def _count_death(self, error: EngineDied, num_written: int) -> None:
        if num_written - self._written_at_death >= PROGRESS_BYTES:
            self._num_deaths = 0
        self._num_deaths += 1
        self._engine.num_moved += 1
        self.num_losses += 1
        self._written_at_death = num_written
        if self._num_deaths == MAX_DEATHS:
            raise error
        if self._engine.is_connected(self.tried[-1]):  # Its engine is dead; Serve will replace the replica.
            self._dead.append(self.tried[-1])

    def note_pieces(self) -> None:
        """Note that the last replica answers."""
        if self.deadline is not None:
            self.deadline = self._refusal = None
            self._num_tries = 0
            self.tried = [*self._dead, self.tried[-1]]


async def _read(stream: ChannelStream) -> list[bytes]:
    try:
        return await stream.read()
    except ChannelError as error:
        raise from_channel(error) from error
