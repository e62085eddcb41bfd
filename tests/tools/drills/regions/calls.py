"""Calls of unmodified OpenAI clients near each region: what they ask, and what came after the SDK's own retries."""

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from openai import APIConnectionError, APIError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient

from tests.serve.ingress import answer_to
from tests.service import CHAT, EMBED
from tests.tools.drills.exchange import Exchange, Kind
from tests.tools.drills.regions.balancer import url_near

STREAM_TOKENS, SHORT_TOKENS = 60, 8
PAUSE_S = 0.5
HANG_S = 60.0
TURNS = 5
"""The turns of a chain; then the client begins another."""


@dataclass
class Call(Exchange):
    """A call of the SDK: one request, and those with which the SDK repeated it. `door` is the region that is near."""

    attempts: int = 0
    """How many requests were sent."""
    regions: list[str] = field(default_factory=list)
    """The region that each answer names, in order."""
    first_token_s: float | None = None
    """From the call to its first token; None where there was none, or where the answer came whole."""
    stored_s: float | None = None
    """From the last token of a turn to the event that says that it is stored."""

    @property
    def wait_s(self) -> float | None:
        """How long the client waited: for a turn until it was stored, else until the first byte. None if it failed."""
        until = self.ended if self.kind == "turn" else self.first_byte
        return until - self.started if self.is_complete and until is not None else None


@dataclass(frozen=True)
class Turn:
    """A turn of a response chain that was acknowledged: what must be found later, whatever has died."""

    response_id: str
    previous_id: str | None
    text: str


class Caller:
    """One client: it asks for one kind of thing, again and again, and notes what it saw."""

    def __init__(self, load: "RegionLoad", near: str, kind: Kind, key: str) -> None:
        self._load = load
        self._near = near
        self._kind = kind
        self._call: Call | None = None
        hooks = {"request": [self._note_request], "response": [self._note_response]}
        self._http = DefaultAsyncHttpxClient(event_hooks=hooks)
        self._client = AsyncOpenAI(base_url=url_near(near), api_key=key, http_client=self._http)
        self._chain: list[tuple[int, int]] = []
        """The words of each turn's question and answer."""
        self._previous: str | None = None

    async def work(self) -> None:
        """Ask until the load ends."""
        while self._load.is_on:
            await self.ask()
            await asyncio.sleep(PAUSE_S)
        await self.close()

    async def close(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    async def ask(self) -> Call:
        """Make one call; return what came of it."""
        load = self._load
        name = f"{self._kind}-{next(load.numbers)}"
        call = self._call = Call(len(load.history), self._kind, name, self._near, load.now)
        load.history.append(call)
        num_tokens = STREAM_TOKENS if self._kind == "stream" else SHORT_TOKENS
        prompt = " ".join(f"{name}.{word}" for word in range(num_tokens))
        load.answers[name] = {"0.content": answer_to(prompt, num_tokens)} if self._kind != "embedding" else {}
        try:
            await getattr(self, f"_ask_{self._kind}")(call, prompt, num_tokens)
        except APIStatusError as error:
            call.status, call.error = error.status_code, error.body
            call.retry_after = error.response.headers.get("retry-after")
            self._previous = None if error.status_code == 404 else self._previous
        except APIConnectionError as error:
            call.lost = f"{type(error.__cause__ or error).__name__}: {error.__cause__ or error}"[:120]
        except (APIError, httpx.HTTPError) as error:
            call.lost = f"{type(error).__name__}: {error}"[:120]
        call.ended = load.now
        return call

    async def _ask_stream(self, call: Call, prompt: str, num_tokens: int) -> None:
        stream = await self._client.chat.completions.create(
            model=CHAT,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=num_tokens,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            self._note_progress(call)
            call.add_object(chunk.model_dump(), "delta")
        call.ends.append("[DONE]")

    async def _ask_whole(self, call: Call, prompt: str, num_tokens: int) -> None:
        answer = await self._client.chat.completions.create(
            model=CHAT, messages=[{"role": "user", "content": prompt}], max_tokens=num_tokens
        )
        self._note_progress(call)
        call.add_object(answer.model_dump())

    async def _ask_embedding(self, call: Call, prompt: str, num_tokens: int) -> None:
        answer = await self._client.embeddings.create(model=EMBED, input=prompt)
        self._note_progress(call)
        call.ends.append("finish:stop" if len(answer.data) == 1 else "error")
        call.prompt_tokens, call.completion_tokens = answer.usage.prompt_tokens, 0

    async def _ask_turn(self, call: Call, prompt: str, num_tokens: int) -> None:
        if len(self._chain) >= TURNS or self._previous is None:
            self._chain, self._previous = [], None
        text, last_at = "", 0.0
        options: dict[str, Any] = {"previous_response_id": self._previous} if self._previous else {}
        stream = await self._client.responses.create(
            model=CHAT, input=prompt, max_output_tokens=num_tokens, stream=True, **options
        )
        async for event in stream:
            self._note_progress(call, is_token=event.type == "response.output_text.delta")
            if event.type == "response.output_text.delta":
                text, last_at = text + event.delta, time.monotonic()
            elif event.type in ("response.completed", "response.incomplete"):
                call.stored_s = time.monotonic() - last_at
                self._end_turn(call, event.response, text, num_tokens)
            elif event.type in ("response.failed", "error"):
                call.error = event.model_dump().get("response", {}).get("error") or event.model_dump()
                call.ends.append("error")
        call.parts["0.content"] = text

    def _end_turn(self, call: Call, response: Any, text: str, num_tokens: int) -> None:
        """Note a turn that was acknowledged. Its input has all turns before it, or its tokens are too few."""
        before = sum(question + answer + 2 for question, answer in self._chain)
        usage = response.usage
        call.ends.append("finish:stop" if usage.input_tokens == before + num_tokens + 1 else "finish:other_history")
        if usage.input_tokens != before + num_tokens + 1:
            call.error = f"the turn was asked with {usage.input_tokens} tokens of {before + num_tokens + 1}"
        call.prompt_tokens, call.completion_tokens = usage.input_tokens, usage.output_tokens
        self._load.turns.append(Turn(response.id, self._previous, text))
        self._chain.append((num_tokens, len(text.split())))
        self._previous = response.id

    def _note_progress(self, call: Call, *, is_token: bool = True) -> None:
        now = self._load.now
        call.first_byte = call.first_byte or now
        if is_token and call.first_token_s is None:
            call.first_token_s = now - call.started

    async def _note_request(self, request: httpx.Request) -> None:
        assert self._call is not None
        self._call.attempts += 1

    async def _note_response(self, response: httpx.Response) -> None:
        call = self._call
        assert call is not None
        call.status = response.status_code
        call.request_id = response.headers.get("x-request-id")
        call.retry_after = response.headers.get("retry-after")
        if region := response.headers.get("x-manta-region"):
            call.regions.append(region)


class Turns:
    """Turns near one region that begin every `every_s` seconds, whatever those before them wait for.

    A turn continues a chain whose last turn has ended; where there is none, it begins another.
    """

    def __init__(self, load: "RegionLoad", near: str, key: str, every_s: float) -> None:
        self._load = load
        self._near = near
        self._key = key
        self._every_s = every_s
        self._idle: list[Caller] = []

    async def work(self) -> None:
        """Begin turns until the load ends; return when all have ended."""
        begins_at = self._load.now
        async with asyncio.TaskGroup() as turns:
            while self._load.is_on:
                turns.create_task(self._take_turn())
                begins_at += self._every_s
                await asyncio.sleep(max(0.0, begins_at - self._load.now))
        for chain in self._idle:
            await chain.close()

    async def _take_turn(self) -> None:
        chain = self._idle.pop() if self._idle else Caller(self._load, self._near, "turn", self._key)
        await chain.ask()
        self._idle.append(chain)


@dataclass(frozen=True)
class Size:
    """How many clients of each kind are near each region, and how often a turn begins there."""

    streams: int = 16
    wholes: int = 4
    embeddings: int = 4
    turn_every_s: float = 0.25

    @property
    def num_clients(self) -> int:
        """The clients near a region that ask again once they were answered."""
        return self.streams + self.wholes + self.embeddings


SMALL = Size(streams=4, wholes=2, embeddings=2, turn_every_s=0.5)


class RegionLoad:
    """Clients near both regions at work; `history` is what they have seen, `turns` what was acknowledged."""

    def __init__(self, key: str, size: Size, sides: tuple[str, ...] = ("us", "asia")) -> None:
        self.history: list[Call] = []
        self.answers: dict[str, dict[str, str]] = {}
        self.turns: list[Turn] = []
        self.numbers = itertools.count(1)
        self.is_on = True
        self._began = time.monotonic()
        kinds: list[Kind] = ["stream"] * size.streams + ["whole"] * size.wholes + ["embedding"] * size.embeddings
        works = [Caller(self, side, kind, key).work() for side in sides for kind in kinds]
        works += [Turns(self, side, key, size.turn_every_s).work() for side in sides]
        self._clients = [asyncio.create_task(work) for work in works]

    @property
    def now(self) -> float:
        """Seconds since the round began."""
        return time.monotonic() - self._began

    async def finish(self) -> list[Call]:
        """Ask nothing more; return the history once every call has ended, or is given up."""
        self.is_on = False
        _, hung = await asyncio.wait(self._clients, timeout=HANG_S)
        for client in hung:
            client.cancel()
        for said in await asyncio.gather(*self._clients, return_exceptions=True):
            if isinstance(said, Exception):
                raise said  # An error of the client's own must not look like a service that is well.
        return self.history
