"""The body of POST /v1/completions, which came before chat, and the chunks of its stream."""

from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

import orjson
from pydantic import Field, model_validator
from typing_extensions import TypedDict

from serve_app.schemas.base import (
    SMALLEST_TEMPERATURE,
    SMALLEST_TOP_P,
    LogitBias,
    ModelId,
    NumChoices,
    Penalty,
    Refused,
    Seed,
    Stop,
    StreamOptions,
    Temperature,
    TopP,
    User,
    check_stream_options,
    estimate_tokens,
    invalid,
    only_when,
    refusal,
)
from serve_app.schemas.engine_options import NOT_FOR_THE_ENGINE, GenerationOptions
from serve_app.schemas.inputs import Input, count_inputs, count_tokens, texts_in
from serve_app.schemas.refused_options import REFUSED_IN_COMPLETIONS
from serve_app.schemas.structured_outputs import ResponseFormat, check_response_format, rewrite_form

AFFINITY_CHARS = 1024
MAX_CHOICES = 128
DEFAULT_MAX_TOKENS = 16

_DROPPED = frozenset({"best_of", "user", *NOT_FOR_THE_ENGINE, *REFUSED_IN_COMPLETIONS})


class CompletionRequest(GenerationOptions):
    """A request to continue a text.

    Args:
        prompt: the text to continue, several texts, or their tokens.
        best_of: accepted if it is 1 or the value of `n`.
        stream: returns the text as server-sent events while the model writes it.
        max_tokens: the max tokens of each completion.
        presence_penalty: above 0, tokens that have appeared at all become less likely.
        frequency_penalty: above 0, tokens become less likely the more often they have appeared.
        logprobs: returns the log probabilities of this number of most likely tokens at each place.
        echo: the text begins with the prompt.
        suffix: the text after the gap that the model fills, with a model that was trained for it, as many for code are.
        response_format: the form that the text must have: text, any JSON object, or JSON that fits a schema.
    """

    example: ClassVar[dict[str, Any]] = {"model": "manta/demo-chat", "prompt": "Once upon a time", "max_tokens": 16}

    prompt_field: ClassVar[str] = "prompt"

    model: ModelId
    prompt: Input
    temperature: Temperature | None = 1.0
    top_p: TopP | None = 1.0
    n: NumChoices | None = 1
    best_of: NumChoices | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: Stop | None = None
    max_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = DEFAULT_MAX_TOKENS
    presence_penalty: Penalty | None = 0.0
    frequency_penalty: Penalty | None = 0.0
    logit_bias: LogitBias | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: bool | None = False
    seed: Seed | None = None
    suffix: str | None = None
    response_format: ResponseFormat | None = None
    user: User | None = None

    # Known, and refused when set.
    prompt_embeds: Refused = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.suffix:
            self._check_beside_suffix()
        if self.best_of not in (None, 1, self.n):
            raise refusal(
                "unsupported_value",
                "Unsupported value: '{param}' does not support values other than 1 or that of 'n'.",
                "best_of",
            )
        check_stream_options(self.stream_options, self.stream)
        self.check_options(REFUSED_IN_COMPLETIONS, stream=self.is_stream, logprobs=self.logprobs is not None)
        self.check_lengths(self.max_tokens_bound())
        check_response_format(self.response_format)
        if self.max_tokens == 0 and not self.echo:
            raise refusal(
                "integer_below_min_value",
                "Invalid '{param}': integer below minimum value. Expected a value >= 1, but got 0 instead.",
                "max_tokens",
            )
        if self.num_choices > MAX_CHOICES:
            raise invalid(
                f"Invalid '{{param}}': too many completions. Expected the number of prompts times 'n' to be at most "
                f"{MAX_CHOICES}, but got {self.num_choices} instead.",
                "prompt",
            )
        return self

    def _check_beside_suffix(self) -> None:
        if not texts_in(self.prompt):
            raise refusal(
                "invalid_type",
                "Invalid type for '{param}': expected a string, or an array of strings, beside 'suffix'.",
                "prompt",
            )
        if self.truncate_prompt_tokens is not None:
            raise only_when("'suffix' is left out", "truncate_prompt_tokens")
        if self.echo and self.logprobs is not None:
            raise only_when("'suffix' or 'logprobs' is left out", "echo")

    @property
    def num_choices(self) -> int:
        """How many completions are asked for, those of all prompts together."""
        return (self.n or 1) * count_inputs(self.prompt)

    @property
    def max_tokens_field(self) -> str:
        """The field that `max_tokens_bound` comes from."""
        return "max_tokens"

    def max_tokens_bound(self) -> int:
        """Return how many tokens each choice may have at most."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    def prompt_estimate_tokens(self) -> int:
        """Return about how many tokens the prompts have; exact where they are given as tokens."""
        suffix_tokens = estimate_tokens([self.suffix]) if self.suffix else 0
        return count_tokens(self.prompt) + count_inputs(self.prompt) * suffix_tokens

    def prompt_texts(self) -> list[str]:
        """Return the texts that the model is asked to continue, and the one that follows."""
        return texts_in(self.prompt) + ([self.suffix] if self.suffix else [])

    def affinity_prefix(self) -> str:
        """Return the session, or the beginning of the first prompt, at most 1,024 characters; only to be hashed."""
        if self.session_id:
            return self.session_id
        prompt: Any = self.prompt
        while isinstance(prompt, list) and not isinstance(prompt[0], int):
            prompt = prompt[0]
        return (
            prompt[:AFFINITY_CHARS] if isinstance(prompt, str) else str(prompt[: AFFINITY_CHARS // 8])[:AFFINITY_CHARS]
        )

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the body in the engine's dialect: `raw`, which this was parsed from, unless it must change."""
        given = self.model_fields_set
        is_greedy_choice = self.temperature == 0 and (self.n or 1) > 1
        has_obfuscation = (
            self.stream_options is not None and "include_obfuscation" in self.stream_options.model_fields_set
        )
        if not (
            is_greedy_choice
            or has_obfuscation
            or self.top_p == 0
            or self.suffix == ""
            or self.form_needs_translation
            or not given.isdisjoint(_DROPPED)
            or any(getattr(self, name) is None for name in given)
        ):
            return raw
        body = {key: value for key, value in orjson.loads(raw).items() if value is not None and key not in _DROPPED}
        if is_greedy_choice:
            body["temperature"] = SMALLEST_TEMPERATURE
        if self.suffix == "":
            del body["suffix"]
        if self.top_p == 0:
            body["top_p"] = SMALLEST_TOP_P
        rewrite_form(body)
        if has_obfuscation:
            del body["stream_options"]["include_obfuscation"]
        return orjson.dumps(body)


class CompletionChunkChoice(TypedDict):
    """A piece of one choice."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "content_filter"] | None
    token_ids: NotRequired[list[int]]
    prompt_token_ids: NotRequired[list[int]]


class CompletionChunk(TypedDict):
    """An event of a stream. The `openai` package's type has no choice that is not finished."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: NotRequired[dict[str, Any] | None]
