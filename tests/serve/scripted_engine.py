"""An engine without a model, for tests of everything around one: starts at once, and its answers are known before.

An answer says the words of the prompt again and again, one token a word, until its length or a stop string; it never
ends by itself. What sets the pace is a small process beside the replica, `scripted_core`, which can be killed as
vLLM's can. `engine_kwargs.step_s` is how long one step takes, in seconds; `cached`, how many tokens of the prompt of a
chat it says to have had in its cache.
"""

import asyncio
import base64
import contextlib
import hashlib
import itertools
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from deployments.channel.server import Reply, Runner
from deployments.models.config import ModelConfig
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied
from deployments.models.contract.events import Event, Finished, FinishReason, TextDelta
from deployments.models.contract.render import (
    DONE,
    ChatBody,
    ChatChunks,
    EventLines,
    Renderer,
    usage_to_wire,
)
from deployments.models.contract.steps import PromptTokens, Written, pack_prompt, pack_step

CORE = Path(__file__).with_name("scripted_core.py")
DIMENSIONS = 384


class Core:
    """The process that steps, as the replica sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._running: dict[int, tuple[Callable[[], bool], asyncio.Future[None]]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, step_s: float, max_running: int) -> "Core":
        command = [sys.executable, "-I", "-S", str(CORE), "EngineCore", str(step_s), str(max_running)]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 24))

    @property
    def is_living(self) -> bool:
        return not self._reading.done()

    async def generate(self, num_tokens: int, priority: int, take: Callable[[], bool]) -> None:
        """Call `take` for each of `num_tokens`; it returns whether it was the last.

        Raises:
            EngineDied: the process has ended.
        """
        if not self.is_living or self._stdin.is_closing():
            raise EngineDied("The engine failed while it ran the request.")
        number, end = next(self._numbers), asyncio.get_running_loop().create_future()
        self._running[number] = take, end
        self._write(number, num_tokens, priority)
        try:
            await end
        finally:
            if self._running.pop(number, None) is not None:
                self._write(number, 0, 0)

    @property
    def _stdin(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin

    def _write(self, *message: int) -> None:
        # The pipe of a dead process closes before its output has been read to the end.
        if not self._stdin.is_closing():
            self._stdin.write(orjson.dumps(message) + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            for number in orjson.loads(line):
                take, end = self._running.get(number, (None, None))
                if take is None or end is None or end.done():  # A request that was cancelled takes itself out later.
                    continue
                if take():
                    del self._running[number]
                    end.set_result(None)
        for _, end in self._running.values():
            if not end.done():
                end.set_exception(EngineDied("The engine failed while it ran the request."))
        self._running.clear()

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading


@dataclass
class Answer:
    """One answer as it is known before it is made: the text of each token, and how it ends."""

    pieces: list[str]
    reason: FinishReason
    num_taken: int = field(default=0, init=False)

    @classmethod
    def plan(cls, words: list[str], max_tokens: int, stops: list[str]) -> "Answer":
        pieces = [f"{word} " for word in itertools.islice(itertools.cycle(words or ["..."]), max_tokens)]
        text = "".join(pieces)
        end = min((found for stop in stops if (found := text.find(stop)) >= 0), default=-1)
        if end < 0:
            return cls(pieces, "length")
        kept = []
        while end >= 0:  # The token in which the stop string begins is the last.
            kept.append(pieces[len(kept)][:end])
            end -= len(pieces[len(kept) - 1])
        return cls(kept, "stop")

    def token_ids(self, start: int = 0, end: int | None = None) -> list[int]:
        return [zlib.crc32(piece.encode()) % 50_000 for piece in self.pieces[start:end]]

    def skip(self, groups: list[list[int]]) -> None:
        """Begin after tokens that were sent before, which must be this answer's own."""
        ids = [token_id for group in groups for token_id in group]
        assert ids == self.token_ids(0, len(ids)), "what was written is not the beginning of this answer"
        self.num_taken = len(ids)

    def take(self) -> tuple[str, int, bool]:
        """Return the text and the id of the next token, and whether it is the last."""
        text, (token_id,) = self.pieces[self.num_taken], self.token_ids(self.num_taken, self.num_taken + 1)
        self.num_taken += 1
        return text, token_id, self.is_over

    @property
    def is_over(self) -> bool:
        return self.num_taken == len(self.pieces)


def summary_of(usage: Usage, reasons: list[str]) -> dict[str, Any]:
    counts = [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens]
    return {"usage": counts, "finish_reasons": reasons}


def stops_of(fields: dict[str, Any]) -> list[str]:
    stop = fields.get("stop") or []
    return [stop] if isinstance(stop, str) else stop


def words_of(content: Any) -> list[str]:
    """Return the words of a message's content, a text or its parts."""
    if isinstance(content, str):
        return content.split()
    return [word for part in content or () for word in part.get("text", "").split()]


class Choices:
    """The answers to one request, which get a token each in every step, and who reads them."""

    def __init__(self, answers: list[Answer], header: dict[str, Any], reply: Reply, usage: Usage) -> None:
        self.answers = answers
        self.usage = usage
        self._reply = reply
        self._sends_notes = header["stream"] and header.get("takes_notes", False)
        written = Written(header.get("written") or ())
        for choice, answer in enumerate(answers):
            answer.skip(written.groups_of(choice))
        usage.completion_tokens = sum(answer.num_taken for answer in answers)
        self._must_note_prompt = self._sends_notes and not written.prompts

    async def generate(self, core: Core, priority: int, render: Callable[[int, str, str | None], bytes]) -> None:
        """Have all tokens made; `render` makes the bytes of a choice's next token."""

        def take() -> bool:
            if self._must_note_prompt:
                self._must_note_prompt = False
                self._reply.write(b"", pack_prompt(0, PromptTokens(self.usage.prompt_tokens, self.usage.cached_tokens)))
            for choice, answer in enumerate(self.answers):
                if not answer.is_over:
                    text, token_id, is_last = answer.take()
                    self.usage.completion_tokens += 1
                    piece = render(choice, text, answer.reason if is_last else None)
                    if self._sends_notes:
                        self._reply.write(piece, pack_step(choice, [token_id]))
                    elif piece:
                        self._reply.write(piece)
            return all(answer.is_over for answer in self.answers)

        num_left = max(len(answer.pieces) - answer.num_taken for answer in self.answers)
        try:
            if num_left:
                await core.generate(num_left, priority, take)
        except asyncio.CancelledError:
            self._reply.end(summary_of(self.usage, []))
            raise

    def end(self, last: bytes) -> None:
        self._reply.end(summary_of(self.usage, [answer.reason for answer in self.answers]), last)


class ChatRunner:
    """Chat completions, for the wire or as events, also from where another engine left off."""

    def __init__(self, core: Core, model: ModelConfig) -> None:
        self._core = core
        self._model = model

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        fields = orjson.loads(body)
        prompts = [words_of(message.get("content")) for message in fields["messages"]]
        usage = Usage(prompt_tokens=sum(len(words) + 1 for words in prompts))
        usage.cached_tokens = min(usage.prompt_tokens, self._model.engine_kwargs.get("cached", 0))
        asked = fields.get("max_completion_tokens") or fields.get("max_tokens")
        room = (self._model.context_tokens or 0) - usage.prompt_tokens
        max_tokens, stops = min(asked or room, room), stops_of(fields)
        answers = [Answer.plan(prompts[-1], max_tokens, stops) for _ in range(fields.get("n") or 1)]
        renderer = self._renderer(header, fields)

        def render(choice: int, text: str, reason: FinishReason | None) -> bytes:
            events: list[Event] = [TextDelta("text", choice, text)] if text else []
            return renderer.events([*events, Finished("finished", choice, reason)] if reason else events)

        choices = Choices(answers, header, reply, usage)
        for choice, answer in enumerate(answers):
            if answer.num_taken:
                render(choice, "what was sent before", None)
        await choices.generate(self._core, header["priority"], render)  # type: ignore[arg-type]
        choices.end(renderer.finish(usage))

    def _renderer(self, header: dict[str, Any], fields: dict[str, Any]) -> Renderer:
        if header["render"] == "events":
            return EventLines()
        completion_id = "chatcmpl-" + header["request_id"].removeprefix("req_")
        created, tier = header.get("created") or int(time.time()), header.get("service_tier", "default")
        if not header["stream"]:
            return ChatBody(completion_id, self._model.id, created, service_tier=tier)
        include_usage = bool((fields.get("stream_options") or {}).get("include_usage"))
        return ChatChunks(completion_id, self._model.id, created, include_usage=include_usage, service_tier=tier)


class CompletionRunner:
    """Legacy completions, for the wire."""

    def __init__(self, core: Core, model: ModelConfig) -> None:
        self._core = core
        self._model = model

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        fields = orjson.loads(body)
        prompts = prompts_of(fields["prompt"])
        usage = Usage(prompt_tokens=sum(len(words) for words in prompts))
        num_tokens, num_choices = fields.get("max_tokens") or 16, fields.get("n") or 1
        answers = [Answer.plan(words, num_tokens, stops_of(fields)) for words in prompts for _ in range(num_choices)]
        choices = Choices(answers, header, reply, usage)

        def render(index: int, text: str, reason: str | None) -> bytes:
            return self._chunk(header, [choice(index, text, reason)]) if header["stream"] else b""

        await choices.generate(self._core, header["priority"], render)
        if not header["stream"]:
            told = [choice(index, "".join(answer.pieces), answer.reason) for index, answer in enumerate(answers)]
            choices.end(orjson.dumps(self._body(header, told, usage=usage_to_wire(usage))))
            return
        include_usage = (fields.get("stream_options") or {}).get("include_usage")
        choices.end((self._chunk(header, [], usage=usage_to_wire(usage)) if include_usage else b"") + DONE)

    def _chunk(self, header: dict[str, Any], choices: list[dict[str, Any]], **more: Any) -> bytes:
        return b"data: " + orjson.dumps(self._body(header, choices, **more)) + b"\n\n"

    def _body(self, header: dict[str, Any], choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": "cmpl-" + header["request_id"].removeprefix("req_"),
            "object": "text_completion",
            "created": header.get("created") or int(time.time()),
            "model": self._model.id,
            "choices": choices,
            "system_fingerprint": None,
            **more,
        }


def choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


def prompts_of(given: Any) -> list[list[str]]:
    """Return the words of each prompt: of a text, of a list of tokens, or of a list of either."""
    if isinstance(given, str):
        return [given.split()]
    if isinstance(given[0], int):
        return [[str(token) for token in given]]
    return [words for one in given for words in prompts_of(one)]


class EmbeddingRunner:
    """Embeddings: a vector of length 1 that only the same input has."""

    def __init__(self, model: ModelConfig) -> None:
        self._model = model

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        fields = orjson.loads(body)
        prompts = prompts_of(fields["input"])
        usage = Usage(prompt_tokens=sum(len(words) for words in prompts))
        data = []
        for index, words in enumerate(prompts):
            seed = int.from_bytes(hashlib.sha256(" ".join(words).encode()).digest()[:8])
            vector = np.random.default_rng(seed).normal(size=DIMENSIONS)
            vector = (vector / np.linalg.norm(vector)).astype("<f4")
            as_text = fields.get("encoding_format") == "base64"
            embedding = base64.b64encode(vector.tobytes()).decode() if as_text else vector.tolist()
            data.append({"object": "embedding", "index": index, "embedding": embedding})
        told = {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
        reply.write(orjson.dumps({"object": "list", "data": data, "model": self._model.id, "usage": told}))
        reply.end(summary_of(usage, []))


class RepeatingEngine:
    """The engine of one replica."""

    def __init__(self, core: Core, model: ModelConfig) -> None:
        self._core = core
        self.runners: dict[str, Runner] = (
            {"embeddings": EmbeddingRunner(model)}
            if model.task == "embed"
            else {"chat": ChatRunner(core, model), "completions": CompletionRunner(core, model)}
        )

    async def check_health(self) -> None:
        """Raise when the process is gone, or when the replica came to import what only vLLM needs."""
        if not self._core.is_living:
            raise EngineDied("The engine's process has ended.")
        assert not {"vllm", "torch"} & sys.modules.keys()

    async def stop(self) -> None:
        await self._core.stop()


async def start_engine(model: ModelConfig) -> RepeatingEngine:
    core = await Core.start(model.engine_kwargs.get("step_s", 0.01), model.max_concurrent_requests)
    engine = RepeatingEngine(core, model)
    await engine.check_health()
    return engine
