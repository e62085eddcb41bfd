"""Moderations: OpenAI's categories of harm in texts, found by patterns, by a guard model, or by both.

Patterns run in linear time (RE2). The score of a category is 0 or 1.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

import orjson
from pydantic import Field, field_validator, model_validator

from deployments.config import Section
from deployments.models.contract.engine import EngineRequest, ModelDirectory, Usage
from deployments.models.contract.errors import EngineDied, RequestRejected
from serve_app.errors.capacity import Unavailable
from serve_app.operations.contract import GeneratedStream
from serve_app.operations.safety.policy import GuardModel, compile_patterns, find
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.moderations import CATEGORIES, Category

_GUARD_PROMPT = (
    "You sort texts for a service. Name every category that the text between the lines belongs to, or say safe. The "
    "categories are: " + ", ".join(CATEGORIES) + ".\n---\n{text}\n---"
)
_GUARD_TOKENS = 64
_NUM_AT_ONCE = 8
_SHORT_CHARS = 4096
"""Shorter texts are searched in the event loop: a thread would take longer."""


class ModerationConfig(Section):
    """What POST /v1/moderations judges texts by; without this section it is off.

    A text belongs to a category when one of the category's patterns (RE2 syntax) is found in it, or when the guard
    model's answer about it matches the category's pattern in `guard_categories`.

    Args:
        id: the name of the moderation model that clients and the scopes of keys use.
        aliases: other names that clients may use.
        patterns: by category, the patterns of texts that belong to it.
        guard_model: the id of a model that judges texts, one of the service's own.
        guard_prompt: the question to the guard model; `{text}` is the text.
        guard_categories: by category, the pattern of a guard model's answer that means it; by default all
            of OpenAI's, each by its name.
        guard_verdict: the pattern of a guard model's answer that flags a text also where no category is named.
        guard_safe: the pattern of a guard model's answer that clears a text. One that neither flags nor clears it is
            no verdict: the request fails.
        guard_max_chars: the longest text that is sent to the guard model; a longer one is sent in parts.
    """

    id: str = Field(default="manta/moderation", min_length=1, max_length=128)
    aliases: tuple[str, ...] = ("omni-moderation-latest", "text-moderation-latest")
    patterns: dict[Category, tuple[str, ...]] = {}
    guard_model: str | None = None
    guard_prompt: str = _GUARD_PROMPT
    guard_categories: dict[Category, str] = {}
    guard_verdict: str = r"(?i)\bunsafe\b"
    guard_safe: str = r"(?i)\bsafe\b"
    guard_max_chars: int = Field(default=8000, ge=100)

    @field_validator("patterns", "guard_categories", "guard_verdict", "guard_safe")
    @classmethod
    def _check_patterns(cls, value: Any) -> Any:
        given = [value] if isinstance(value, str) else list(value.values())
        for pattern in [one for some in given for one in ([some] if isinstance(some, str) else some)]:
            if find(compile_patterns([pattern]), "") is not None:
                raise ValueError(f"the pattern {pattern!r} matches an empty text, so it would match every text")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not any(self.patterns.values()) and self.guard_model is None:
            raise ValueError("moderation needs 'patterns' or a 'guard_model'")
        if "{text}" not in self.guard_prompt:
            raise ValueError("'guard_prompt' must hold '{text}', where the text to judge goes")
        return self


class Moderator:
    """Judges texts by a configuration."""

    def __init__(self, config: ModerationConfig, directory: ModelDirectory) -> None:
        self.config = config
        self._patterns = {name: compile_patterns(list(some)) for name, some in config.patterns.items() if some}
        named = config.guard_categories or {name: _by_name(name) for name in CATEGORIES}
        self._named = {name: compile_patterns([pattern]) for name, pattern in named.items()}
        self._verdict = compile_patterns([config.guard_verdict])
        self._safe = compile_patterns([config.guard_safe])
        self._guard: GuardModel | None = None
        if config.guard_model is not None:
            self._guard = GuardModel(config.guard_model, config.guard_prompt, _GUARD_TOKENS, directory)

    def guard_tokens(self, texts: Sequence[str]) -> tuple[int, int]:
        """Return about how many tokens the guard model reads, and its max tokens; 0 without a guard model."""
        if self._guard is None:
            return 0, 0
        parts = [part for text in texts for part in self._parts(text)]
        questions = len(parts) * estimate_tokens([self.config.guard_prompt])
        return questions + estimate_tokens(parts), len(parts) * _GUARD_TOKENS

    async def judge(self, text: str, request: EngineRequest, usage: Usage) -> dict[str, Any]:
        """Return the verdict on a text for the client; add the guard model's tokens to `usage`.

        Raises:
            EngineError: the guard model could not be asked.
            Unavailable: its answer is no verdict.
        """
        found = self._search(text) if len(text) <= _SHORT_CHARS else await asyncio.to_thread(self._search, text)
        is_flagged = bool(found)
        if self._guard is not None:
            for part in self._parts(text):
                said = await self._ask(self._guard, part, request, usage)
                named = {name for name, pattern in self._named.items() if find(pattern, said) is not None}
                found |= named
                if named or find(self._verdict, said) is not None:
                    is_flagged = True
                elif find(self._safe, said) is None:
                    raise Unavailable(
                        "The guard model of moderations gave no verdict on a text, so it is not known whether it is "
                        "harmful. Please try again, or ask the operator."
                    )
        return {
            "flagged": is_flagged,
            "categories": {name: name in found for name in CATEGORIES},
            "category_scores": {name: float(name in found) for name in CATEGORIES},
            "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
        }

    def _search(self, text: str) -> set[Category]:
        return {name for name, patterns in self._patterns.items() if find(patterns, text) is not None}

    def _parts(self, text: str) -> list[str]:
        size = self.config.guard_max_chars
        return [text[start : start + size] for start in range(0, len(text), size)]

    async def _ask(self, guard: GuardModel, text: str, request: EngineRequest, usage: Usage) -> str:
        try:
            said, used = await guard.ask(text, request)
        except RequestRejected:  # The client sent neither its question nor its options.
            raise EngineDied("The guard model of moderations refused its question.") from None
        usage.prompt_tokens += used.prompt_tokens
        usage.completion_tokens += used.completion_tokens
        usage.cached_tokens += used.cached_tokens
        return said


class ModerationStream(GeneratedStream):
    """The verdicts on the texts of a request, in one piece. It raises EngineError or Unavailable as `judge` does."""

    def __init__(self, moderator: Moderator, texts: Sequence[str], request: EngineRequest) -> None:
        super().__init__()
        self._moderator = moderator
        self._texts = texts
        self._request = request

    async def _generate(self) -> AsyncGenerator[bytes]:
        usage = self.summary.usage = Usage()
        free = asyncio.Semaphore(_NUM_AT_ONCE)

        async def judge(text: str) -> dict[str, Any]:
            async with free:
                return await self._moderator.judge(text, self._request, usage)

        judging = [asyncio.create_task(judge(text)) for text in self._texts]
        try:
            results = await asyncio.gather(*judging)
        finally:
            for task in judging:
                task.cancel()
            await asyncio.gather(*judging, return_exceptions=True)
        answer_id = "modr-" + self._request.request_id.removeprefix("req_")
        yield orjson.dumps({"id": answer_id, "model": self._moderator.config.id, "results": results})


def _by_name(category: str) -> str:
    """Return the pattern of an answer that names a category."""
    return rf"(?i)(^|[^\w/-]){re.escape(category)}($|[^\w/-])"
