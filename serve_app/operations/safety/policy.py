"""Safety policies: forbidden prompts and answers of a model, found by patterns (RE2) or by a guard model."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import re2  # type: ignore[import-untyped]
from pydantic import Field, field_validator, model_validator

from deployments.config import Section
from deployments.models.contract.engine import EngineRequest, ModelDirectory, Usage
from deployments.models.contract.errors import EngineDied, EngineError
from deployments.operations import Operation
from serve_app.errors.api import BadRequest
from serve_app.errors.capacity import Unavailable
from serve_app.schemas.moderation_option import RequestModeration


class GuardModel:
    """A model of the service that answers a question about texts; `{text}` in `prompt` is the text."""

    def __init__(self, model: str, prompt: str, max_tokens: int, directory: ModelDirectory) -> None:
        self._model = model
        self._prompt = prompt
        self._max_tokens = max_tokens
        self._directory = directory

    async def ask(self, text: str, request: EngineRequest) -> tuple[str, Usage]:
        """Return the model's answer about a text, and its usage; salt and priority are those of `request`.

        Raises:
            EngineError: the model could not be asked.
        """
        engine = self._directory.find(self._model)
        if engine is None:
            raise EngineDied("The guard model of this safety policy is not deployed.")
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": self._prompt.replace("{text}", text)}],
            "max_tokens": self._max_tokens,
            "temperature": 0,
        }
        stream = engine.run(
            EngineRequest(
                operation=Operation.CHAT,
                request_id=f"{request.request_id}-{secrets.token_hex(4)}",  # The guarded one may still be running.
                body=orjson.dumps(body),
                cache_salt=request.cache_salt,
                priority=request.priority,
            )
        )
        try:
            answer = orjson.loads(b"".join([piece async for piece in stream]))
        finally:
            await stream.aclose()
        said: str = answer["choices"][0]["message"]["content"] or ""
        return said, stream.summary.usage or Usage()


_GUARD_PROMPT = (
    "You check texts for a service. Say whether the text between the lines breaks its safety policy: instructions for "
    "serious harm, sexual content with minors, or hatred. Answer with one word, safe or unsafe.\n---\n{text}\n---"
)
_VERDICT_TOKENS = 16
_MAX_PATTERN_MEMORY_BYTES = 64 * 1024 * 1024


class SafetyConfig(Section):
    """The safety policy of one model.

    A text breaks the policy when a pattern (RE2 syntax) is found in it, or when the guard model's answer about it
    matches `guard_verdict`. Patterns see a moving piece of a text, so anchors (^, $) mean nothing in them.
    The guard model is asked once about the prompt, then about each piece of the answer.

    Args:
        patterns: what prompts and answers must not hold.
        guard_model: the id of a model that judges texts, one of the service's own.
        guard_prompt: the question to the guard model; `{text}` is the text.
        guard_verdict: the pattern of a guard model's answer that means a violation.
        guard_safe: the pattern of a guard model's answer that clears a text. One that means no violation and does not
            clear it is no verdict: the request fails.
        guard_every_chars: how much of an answer is judged at once.
        guard_max_chars: the longest text that is sent to the guard model; of a longer one, its end.
        window_chars: how much of an answer is held back while it streams; a match up to that long is never shown in
            part.
        checks_prompt, checks_answer: whether prompts and answers are checked.
    """

    patterns: tuple[str, ...] = ()
    guard_model: str | None = None
    guard_prompt: str = _GUARD_PROMPT
    guard_verdict: str = r"(?i)\bunsafe\b"
    guard_safe: str = r"(?i)\bsafe\b"
    guard_every_chars: int = Field(default=1000, ge=1)
    guard_max_chars: int = Field(default=8000, ge=1)
    window_chars: int = Field(default=256, ge=1, le=100_000)
    checks_prompt: bool = True
    checks_answer: bool = True

    @field_validator("patterns", "guard_verdict", "guard_safe")
    @classmethod
    def _check_patterns(cls, value: Any) -> Any:
        for pattern in [value] if isinstance(value, str) else value:
            if find(compile_patterns([pattern]), "") is not None:
                raise ValueError(f"the pattern {pattern!r} matches an empty text, so it would match every text")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> "SafetyConfig":
        if not self.patterns and self.guard_model is None:
            raise ValueError("a safety policy needs 'patterns' or a 'guard_model'")
        if "{text}" not in self.guard_prompt:
            raise ValueError("'guard_prompt' must hold '{text}', where the text to check goes")
        return self


def compile_patterns(patterns: list[str]) -> Any:
    """Return one matcher for several patterns. Raises ValueError if one of them is not valid RE2 syntax."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PATTERN_MEMORY_BYTES
    for pattern in patterns:
        try:
            re2.compile(pattern, options)
        except re2.error as error:
            raise ValueError(f"the pattern {pattern!r} is not valid RE2 syntax: {error}") from None
    return re2.compile("|".join(f"(?:{pattern})" for pattern in patterns), options)


def find(matcher: Any, text: str) -> tuple[int, int] | None:
    """Return where the first match in a text begins and ends, None where there is none."""
    match = matcher.search(text)
    return None if match is None else (match.start(), match.end())


@dataclass(frozen=True, slots=True)
class SafetyPolicy:
    """One model's policy, ready to be applied; `matcher` is None without patterns."""

    config: SafetyConfig
    matcher: Any
    guard: "Guard | None"

    async def prompt_breaks(self, text: str, request: EngineRequest) -> bool:
        """Return whether a prompt breaks the policy. Raises EngineDied or Unavailable as `Guard.objects` does."""
        if not self.config.checks_prompt:
            return False
        if self.matcher is not None and find(self.matcher, text) is not None:
            return True
        return self.guard is not None and await self.guard.objects(text, request)


class Guard:
    """The guard model of a safety policy."""

    def __init__(self, config: SafetyConfig, model: str, directory: ModelDirectory) -> None:
        self._model = GuardModel(model, config.guard_prompt, _VERDICT_TOKENS, directory)
        self._max_chars = config.guard_max_chars
        self._verdict = compile_patterns([config.guard_verdict])
        self._safe = compile_patterns([config.guard_safe])

    async def objects(self, text: str, request: EngineRequest) -> bool:
        """Return whether the guard model finds that a text breaks the policy; of a long text it sees the end.

        Raises:
            EngineDied: the model could not be asked; unchecked text must not go out.
            Unavailable: its answer is no verdict.
        """
        try:
            said, _ = await self._model.ask(text[-self._max_chars :], request)
        except EngineDied:
            raise
        except EngineError:
            raise EngineDied("The guard model of this safety policy did not answer.") from None
        if find(self._verdict, said) is not None:
            return True
        if find(self._safe, said) is None:
            raise Unavailable(
                "The guard model of the safety policy gave no verdict, so it is not known whether the text breaks it. "
                "Please try again, or ask the operator."
            )
        return False


def check_moderation(asked: RequestModeration | None, policy: SafetyPolicy | None) -> None:
    """Check that a request asks for no other moderation than what its model's policy does, which is to block.

    Raises:
        BadRequest: it asks for scores, or for a check that the policy does not make.
    """
    if asked is None:
        return
    if policy is None:
        raise BadRequest(
            "Unsupported parameter: 'moderation' is not supported with this model, which has no safety policy. Leave "
            "it out, or ask the operator, who can set 'safety' for the model.",
            param="moderation",
            code="unsupported_parameter",
        )
    checked = {"input": policy.config.checks_prompt, "output": policy.config.checks_answer}
    for param, mode in asked.modes.items():
        side = param.rpartition(".")[2]
        if mode == "block" and checked.get(side):
            continue
        problem = "returns no scores" if mode == "score" else f"does not check the {side}"
        raise BadRequest(
            f'Unsupported value: the safety policy of this model {problem}. Send \'{{"mode": "block"}}\' for what it '
            "checks, or ask '/v1/moderations' for scores.",
            param=param,
            code="unsupported_value",
        )


def create_policies(configs: Mapping[str, SafetyConfig], directory: ModelDirectory) -> dict[str, SafetyPolicy]:
    """Return the policies by model id, also for the adapters of the models."""
    policies = {}
    for model_id, config in configs.items():
        guard = None if config.guard_model is None else Guard(config, config.guard_model, directory)
        matcher = compile_patterns(list(config.patterns)) if config.patterns else None
        policies[model_id] = SafetyPolicy(config, matcher, guard)
    for card in directory.cards() if policies else ():  # What holds for a model holds for its adapters.
        if card.base is not None and card.base in policies:
            policies[card.id] = policies[card.base]
    return policies
