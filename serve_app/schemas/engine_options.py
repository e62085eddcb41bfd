"""vLLM's own options of a request, with the bounds that this service sets, and those that it refuses.

`docs/guides/options.md` names every field. Most refused options would let one account harm another. Nothing here reads
a tokenizer: the engine checks whether a token exists.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from serve_app.schemas.base import OperationRequest, WireModel, check_string, check_tokens, only_when, refusal
from serve_app.schemas.structured_outputs import (
    GUIDED,
    Choice,
    Grammar,
    JsonForm,
    Regex,
    StructuredOutputs,
    check_one_form,
    needs_translation,
)

_ENGINE_INSIDE = "it reaches into the engine, which all accounts share"
_ANY_MEMORY = "it could take any amount of the engine's memory, which all accounts share"
_RENDER_ONLY = "no answer of this endpoint would show it"
REFUSED: Mapping[str, tuple[Any, str]] = {
    "use_beam_search": (False, "the engine keeps no order of priorities for it, nor the limits of a key"),
    "length_penalty": (1.0, "it only means something in a beam search, which is not offered"),
    "kv_transfer_params": (None, _ENGINE_INSIDE),
    "ec_transfer_params": (None, _ENGINE_INSIDE),
    "vllm_xargs": (None, _ENGINE_INSIDE),
    "request_id": (None, "the service numbers requests itself"),
    "mm_processor_kwargs": (None, _ANY_MEMORY),
    "guided_decoding_backend": (None, "the model's configuration names the compiler of grammars"),
    "guided_whitespace_pattern": (None, "the model's configuration says which white space JSON has"),
    "routed_experts_prompt_start": (0, _RENDER_ONLY),
    "return_token_offsets": (False, _RENDER_ONLY),
    "mm_payload": ("tensors", _RENDER_ONLY),
    "return_mm_kwargs": (None, _RENDER_ONLY),
    "watermarking": (None, "the model's configuration says which answers have a watermark"),
}
"""Refused fields of all requests: the value that has no effect, and why any other is refused."""
REFUSED_IN_CHAT: Mapping[str, tuple[Any, str]] = {
    **REFUSED,
    "chat_template": (None, "templates are programs. Send 'chat_template_kwargs' to the model's own template"),
    "media_io_kwargs": (None, _ANY_MEMORY),
    "return_assistant_tokens_mask": (False, _RENDER_ONLY),
}
REFUSED_IN_COMPLETIONS: Mapping[str, tuple[Any, str]] = {**REFUSED, "prompt_embeds": (None, _ENGINE_INSIDE)}
REFUSED_IN_EMBEDDINGS: Mapping[str, tuple[Any, str]] = {
    name: REFUSED[name] for name in ("request_id", "mm_processor_kwargs")
} | {
    "messages": (None, "only texts and tokens are embedded. Send them as 'input'"),
    "padding": ("do_not_pad", "every input would take the model's whole context"),
    "priority": (0, "embeddings are not put in an order"),
}


def check_refused(request: WireModel, refused: Mapping[str, tuple[Any, str]]) -> None:
    """Check that refused fields are left out, or have the value that has no effect."""
    for name in request.model_fields_set & refused.keys():
        value, (harmless, reason) = getattr(request, name), refused[name]
        if value is not None and value != harmless:
            raise refusal(
                "unsupported_parameter", f"Unsupported parameter: '{{param}}' is not supported: {reason}.", name
            )


MAX_STOP_TOKENS = 128
MAX_ALLOWED_TOKENS = 32_768
MAX_LOGPROB_TOKENS = 128
MAX_BAD_WORDS = 64
MAX_BAD_WORD_CHARS = 128
MAX_PROMPT_LOGPROBS = 20
MAX_PRIORITY = 1_000
MAX_REPETITION = 32
MAX_STREAM_INTERVAL = 1_024
# A penalty outside of these overflows a float.
SMALLEST_REPETITION_PENALTY = 0.01
LARGEST_REPETITION_PENALTY = 100.0

NOT_FOR_THE_ENGINE = frozenset({"cache_salt", "priority", "session_id"})
"""Options that the service uses itself."""


def _check_words(words: list[str]) -> list[str]:
    for index, word in enumerate(words):
        if not word.strip():
            raise refusal("empty_string", "Invalid '{param}': empty string. Every word needs a letter.", f"[{index}]")
        check_string(word, MAX_BAD_WORD_CHARS, f"[{index}]")
    return words


def _check_truncation(num_tokens: int) -> int:
    if num_tokens == 0:
        raise refusal(
            "integer_below_min_value",
            "Invalid '{param}': expected -1, for as many tokens as the model takes, or a number from 1 on.",
        )
    return num_tokens


Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Truncation = Annotated[int, Field(ge=-1, le=2**31 - 1), AfterValidator(_check_truncation)]
RepetitionSize = Annotated[int, Field(ge=0, le=MAX_REPETITION)]


class RepetitionDetection(WireModel):
    """Ends an answer that repeats a pattern: the pattern's size in tokens, and how often it comes in a row."""

    max_pattern_size: RepetitionSize = 0
    min_pattern_size: RepetitionSize = 0
    min_count: RepetitionSize = 0

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.min_pattern_size > self.max_pattern_size:
            raise refusal(
                "invalid_value", "Invalid '{param}': it is larger than 'max_pattern_size'.", ".min_pattern_size"
            )
        if self.max_pattern_size and self.min_count < 2:
            raise refusal(
                "integer_below_min_value",
                "Invalid '{param}': expected how often a pattern comes, 2 or more.",
                ".min_count",
            )
        return self


class SamplingOptions(OperationRequest):
    """Which tokens a model may write, and when it stops."""

    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: (
        Annotated[float, Field(ge=SMALLEST_REPETITION_PENALTY, le=LARGEST_REPETITION_PENALTY)] | None
    ) = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[Any], Field(max_length=MAX_STOP_TOKENS), AfterValidator(check_tokens)] | None = None
    include_stop_str_in_output: bool | None = None
    bad_words: (
        Annotated[list[str], Field(fail_fast=True, max_length=MAX_BAD_WORDS), AfterValidator(_check_words)] | None
    ) = None
    allowed_token_ids: (
        Annotated[list[Any], Field(min_length=1, max_length=MAX_ALLOWED_TOKENS), AfterValidator(check_tokens)] | None
    ) = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    repetition_detection: RepetitionDetection | None = None

    def sampling_options(self) -> dict[str, Any]:
        """Return the options that are set, as JSON values."""
        return self.model_dump(include=set(SamplingOptions.model_fields), exclude_none=True)

    def check_lengths(self, max_tokens: int | None) -> None:
        """Check that `min_tokens` is not above the max tokens."""
        if self.min_tokens and max_tokens is not None and self.min_tokens > max_tokens:
            raise refusal(
                "integer_above_max_value",
                f"Invalid '{{param}}': it is larger than the greatest number of tokens, {max_tokens}.",
                "min_tokens",
            )


class PromptOptions(OperationRequest):
    """How a prompt becomes tokens, and which cache keeps them."""

    truncate_prompt_tokens: Truncation | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None

    # Known, and refused when set.
    request_id: Any = None
    mm_processor_kwargs: Any = None

    def count_cut(self, num_tokens: int, num_prompts: int, max_model_len: int) -> int:
        """Return how many of the `num_tokens` of the prompts are cut off, 0 where prompts are not truncated."""
        if self.truncate_prompt_tokens is None:
            return 0
        longest = max_model_len if self.truncate_prompt_tokens < 0 else self.truncate_prompt_tokens
        return max(0, num_tokens - longest * num_prompts)


class GenerationOptions(SamplingOptions, PromptOptions):
    """vLLM's options that chat and completions share."""

    thinking_token_budget: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    logprob_token_ids: (
        Annotated[list[Any], Field(max_length=MAX_LOGPROB_TOKENS), AfterValidator(check_tokens)] | None
    ) = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_PROMPT_LOGPROBS)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    stream_interval: Annotated[int, Field(ge=1, le=MAX_STREAM_INTERVAL)] | None = None
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] | None = None
    session_id: Annotated[str, Field(max_length=1024)] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonForm | None = None
    guided_regex: Regex | None = None
    guided_choice: Choice | None = None
    guided_grammar: Grammar | None = None

    # Known, and refused when set.
    use_beam_search: Any = None
    length_penalty: Any = None
    kv_transfer_params: Any = None
    ec_transfer_params: Any = None
    vllm_xargs: Any = None
    guided_decoding_backend: Any = None
    guided_whitespace_pattern: Any = None
    routed_experts_prompt_start: Any = None
    return_token_offsets: Any = None
    mm_payload: Any = None
    return_mm_kwargs: Any = None
    watermarking: Any = None

    def forms(self) -> list[str]:
        """Return the names of the fields that set the answer's form."""
        wanted = getattr(self, "response_format", None)
        first = [] if wanted is None or wanted.type == "text" else ["response_format"]
        return first + [name for name in ("structured_outputs", *GUIDED) if getattr(self, name) is not None]

    @property
    def form_needs_translation(self) -> bool:
        """Whether the form of the answer must be rewritten for the engine."""
        return any(getattr(self, name) is not None for name in GUIDED) or needs_translation(self.structured_outputs)

    def shown_tokens_field(self) -> str | None:
        """Return the field that asks for tokens of the answer or the prompt besides the text, None where none does."""
        names = ("return_token_ids", "prompt_logprobs", "return_prompt_text")
        return next((name for name in names if getattr(self, name, None) not in (None, False)), None)

    def prompt_logprobs_field(self) -> str | None:
        """Return the field that asks for log probabilities of the prompt, None where none does."""
        if self.prompt_logprobs is not None:
            return "prompt_logprobs"
        number = "top_logprobs" if "top_logprobs" in type(self).model_fields else "logprobs"
        return number if getattr(self, "echo", None) and getattr(self, number, None) is not None else None

    def check_options(self, refused: Mapping[str, tuple[Any, str]], *, stream: bool, logprobs: bool) -> None:
        """Check the options that depend on other fields of the request."""
        check_refused(self, refused)
        check_one_form(self.forms())
        if self.prompt_logprobs is not None and stream:
            raise only_when("'stream' is off", "prompt_logprobs")
        if (name := self.prompt_logprobs_field()) is not None and (getattr(self, "n", None) or 1) > 1:
            raise refusal(
                "invalid_value",
                "Log probabilities of the prompt, which '{param}' asks for, are only allowed when 'n' is 1: the model "
                "would read the prompt anew for each choice.",
                name,
            )
        if self.logprob_token_ids and not logprobs:
            raise only_when("'logprobs' is set", "logprob_token_ids")
