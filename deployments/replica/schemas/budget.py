"""Refuses schemas, regular expressions and grammars that would cost an engine too much, before the engine sees them.

A schema of a few hundred bytes can take a grammar compiler minutes or gigabytes, and a regular expression of ten bytes
can take seconds for each token, in the process that generates for all requests. So each new form is first compiled and
followed for some tokens in another process, with little time and memory. A form that turns out slow in the engine is
refused to that account for a while: its speed depends on other options of the request, so other accounts may use it.
The ingress validates the content of schemas, and limits the size of all forms.
"""

import asyncio
import hashlib
import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

from deployments.bounded_process import ENVIRONMENT, Bounds, command
from deployments.models.contract.errors import Overloaded, RequestRejected
from deployments.replica.schemas.process import HEADER, INVALID, OK, REFUSED, TIMED_OUT, TOO_COSTLY
from deployments.replica.schemas.requested import Requested
from deployments.replica.signals import SlowGrammar

_MAX_REMEMBERED = 4096
_MAX_REMEMBERED_CHARS = 32 * 1024 * 1024
_MAX_LINE_BYTES = 32 * 1024 * 1024
_MAX_WAITING = 64
_REFUSED_FOR_S = 600.0
"""After that a form that cost too much is tried again: on a busy machine, CPU time grows too."""
_SLOW = "slow"
_MESSAGES = {
    INVALID: "Invalid {noun} for '{param}': it cannot be turned into a grammar.",
    REFUSED: "Invalid {noun} for '{param}': {sentence}",
    TOO_COSTLY: "Invalid {noun} for '{param}': it takes too much time or memory to turn into a grammar. {advice}",
    _SLOW: "Invalid {noun} for '{param}': an answer before took too much time to keep to it. {advice}",
}
_SCHEMA_ADVICE = "Use fewer properties, shorter enums, and no bounds on the length of strings (maxLength, minLength)."
_ADVICE = "Use fewer repetitions, and none inside another that could match the same text in several ways."


class Verdict(NamedTuple):
    """The result of a trial: its kind, and the text to compile or the details of a refusal."""

    kind: str = OK
    text: str = ""


class SchemaCompiler:
    """Tries schemas in a process that is started once and kept warm.

    `tokenizer_info` comes from `describe_tokenizer`, so that a trial costs what the engine's compilation costs. Without
    it, the vocabulary is single bytes, which costs less (a single `maxLength` of 100 takes four seconds with 100,000
    tokens). One schema may take `cpu_s`, `memory_bytes` and `wall_s`; `max_parallel` are tried at a time. Remembers
    verdicts by digest, so that a schema that comes with every request costs once. `clock` returns seconds.
    """

    def __init__(
        self,
        tokenizer_info: str | None = None,
        *,
        any_whitespace: bool = True,
        cpu_s: int = 2,
        memory_bytes: int = 512 * 1024 * 1024,
        wall_s: int = 20,
        max_parallel: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = {
            "tokenizer_info": tokenizer_info,
            "any_whitespace": any_whitespace,
            "bounds": asdict(Bounds(cpu_s, wall_s, memory_bytes, output_bytes=0)),
        }
        # With the time at which each is forgotten.
        self._verdicts: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()
        self._num_chars = 0
        self._clock = clock
        self._trials: dict[bytes, asyncio.Task[Verdict]] = {}
        self._places = asyncio.Semaphore(max_parallel)
        self._starting = asyncio.Lock()
        self._process: _Process | None = None

    async def start(self) -> None:
        """Start the process and wait until it is warm; otherwise the first `check` does so."""
        async with self._starting:
            if self._process is None or self._process.has_ended:
                self._process = await _Process.start(self._config)

    async def check(self, requested: Requested, account: str = "") -> str:
        """Return the rewritten text of a schema or another form, for the engine.

        Raises:
            RequestRejected: it has a schema that cannot be kept, or cannot be compiled within the budget.
            Overloaded: too many others are being tried, the machine is too busy, or the process ended meanwhile.
        """
        asked = _asked(requested)
        digest = _digest(asked)
        verdict = self._recall(_digest(asked, account)) or self._recall(digest)
        if verdict is None:
            trial = self._trials.get(digest)
            if trial is None:
                if len(self._trials) >= _MAX_WAITING:
                    raise Overloaded("Too many new JSON schemas are being compiled. Please try again later.")
                trial = asyncio.create_task(self._try(digest, asked))
                self._trials[digest] = trial
                trial.add_done_callback(lambda done: self._forget(digest, done))
            # A cancelled caller must not end the trial for others that wait for it.
            verdict = await asyncio.shield(trial)
        if verdict.kind != OK:
            raise _rejected(requested, verdict)
        return verdict.text

    @contextmanager
    def following(self, forms: Iterable[Requested], account: str) -> Iterator[None]:
        """Context manager in which a request runs; refuses its forms to the account later if they are too slow."""
        try:
            yield
        except SlowGrammar:
            for requested in forms:
                self._remember(_digest(_asked(requested), account), Verdict(_SLOW))
            raise

    async def aclose(self) -> None:
        """End the process."""
        async with self._starting:
            if self._process is not None:
                await self._process.aclose()
                self._process = None

    def _forget(self, digest: bytes, trial: asyncio.Task[Verdict]) -> None:
        self._trials.pop(digest, None)
        # All callers may have left; reading the error marks it as retrieved.
        if not trial.cancelled():
            trial.exception()

    async def _try(self, digest: bytes, asked: bytes) -> Verdict:
        async with self._places:
            await self.start()
            process = self._process
            if process is None:
                raise Overloaded("The JSON schema could not be compiled. Please try again.")
            verdict = await process.ask(asked)
        if verdict.kind == TIMED_OUT:
            raise Overloaded("The form of the answer could not be compiled in time. Please try again later.")
        self._remember(digest, verdict)
        return verdict

    def _recall(self, digest: bytes) -> Verdict | None:
        verdict, until = self._verdicts.get(digest, (None, 0.0))
        if verdict is None:
            return None
        if self._clock() >= until:
            self._drop(digest)
            return None
        self._verdicts.move_to_end(digest)
        return verdict

    def _remember(self, digest: bytes, verdict: Verdict) -> None:
        self._drop(digest)
        is_lasting = verdict.kind in (OK, INVALID, REFUSED)
        self._verdicts[digest] = verdict, math.inf if is_lasting else self._clock() + _REFUSED_FOR_S
        self._num_chars += len(verdict.text)
        while len(self._verdicts) > _MAX_REMEMBERED or self._num_chars > _MAX_REMEMBERED_CHARS:
            self._drop(next(iter(self._verdicts)))

    def _drop(self, digest: bytes) -> None:
        verdict, _ = self._verdicts.pop(digest, (Verdict(), 0.0))
        self._num_chars -= len(verdict.text)


def _rejected(requested: Requested, verdict: Verdict) -> RequestRejected:
    is_schema = requested.form in ("json", "calls") or (verdict.kind == REFUSED and requested.form != "regex")
    noun, advice = ("schema", _SCHEMA_ADVICE) if is_schema else ("value", _ADVICE)
    position, sentence = json.loads(verdict.text) if verdict.kind == REFUSED else (0, "")
    param = requested.param_of(position) if verdict.kind == REFUSED else requested.param
    message = _MESSAGES[verdict.kind].format(noun=noun, param=param, advice=advice, sentence=sentence)
    return RequestRejected(message, param=param, code="invalid_value")


def _asked(requested: Requested) -> bytes:
    return f"{requested.form}\n{requested.text}".encode()


def _digest(asked: bytes, account: str | None = None) -> bytes:
    """Return the key of a verdict: for all accounts, or for one."""
    return hashlib.sha256(asked if account is None else account.encode() + b"\n" + asked).digest()


class _Process:
    """One running `process`, and the forms that it has not answered yet."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: dict[int, asyncio.Future[Verdict]] = {}
        self._last_number = 0
        self._reader: asyncio.Task[None] | None = None
        self.has_ended = False

    @classmethod
    async def start(cls, config: dict[str, Any]) -> "_Process":
        """Return a warm process, or raise Overloaded."""
        process = await asyncio.create_subprocess_exec(
            *command("deployments.replica.schemas.process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=ENVIRONMENT,
            limit=_MAX_LINE_BYTES,
        )
        self = cls(process)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(config).encode() + b"\n")
            await process.stdin.drain()
            greeting = await process.stdout.readline()
        except BaseException:
            await self.aclose()
            raise
        if greeting != b"ready\n":
            await self.aclose()
            raise Overloaded("JSON schemas cannot be compiled at the moment. Please try again later.")
        self._reader = asyncio.create_task(self._read_answers(process.stdout))
        return self

    async def ask(self, asked: bytes) -> Verdict:
        """Return the verdict on a form and its text; raises Overloaded if the process ends first."""
        if self.has_ended:
            raise Overloaded("The JSON schema could not be compiled. Please try again.")
        self._last_number = (self._last_number + 1) % 2**32
        number = self._last_number
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(HEADER.pack(number, len(asked)) + asked)
            await self._process.stdin.drain()
            return await answer
        except (BrokenPipeError, ConnectionResetError):
            raise Overloaded("The JSON schema could not be compiled. Please try again.") from None
        finally:
            self._answers.pop(number, None)

    async def aclose(self) -> None:
        """End the process; harmless when it has ended."""
        self.has_ended = True
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        if self._reader is not None:
            await self._reader

    async def _read_answers(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            number, _, verdict = line.decode().strip().partition(" ")
            answer = self._answers.get(int(number))
            if answer is not None and not answer.done():
                answer.set_result(Verdict(*json.loads(verdict)))
        self.has_ended = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Overloaded("The JSON schema could not be compiled. Please try again."))


def describe_tokenizer(tokenizer: Any, vocab_size: int) -> str:
    """Return a Hugging Face tokenizer as `SchemaCompiler` takes it; loads xgrammar."""
    import xgrammar

    described: str = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size).serialize_json()
    return described
