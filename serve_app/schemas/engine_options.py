"""vLLM's own options of a request, which OpenAI's schema does not have, with the bounds that this service sets.

`docs/guides/options.md` names every field. Those that are refused are in
`refused_options`. Nothing here reads a tokenizer: whether a token exists, the engine says.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import AfterValidator, Field, model_validator

from serve_app.schemas.base import OperationRequest, WireModel, refusal
from serve_app.schemas.prompts import check_tokens
from serve_app.schemas.refused_options import check_refused
from serve_app.schemas.structured_outputs import (
    GUIDED,
    Choice,
    Grammar,
    JsonForm,
    Regex,
    StructuredOutputs,
    check_one_form,
    is_foreign,
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
MAX_TEMPLATE_ARGUMENTS = 64
MAX_TEMPLATE_BYTES = 16_384
MAX_DOCUMENTS = 256
# A penalty outside of these makes numbers that a float cannot hold.
SMALLEST_REPETITION_PENALTY = 0.01
LARGEST_REPETITION_PENALTY = 100.0

NOT_FOR_THE_ENGINE = frozenset({"cache_salt", "priority", "session_id"})
"""Options that the service acts on itself."""

# What the service or the engine gives to a template itself.
_OWN_TEMPLATE_ARGUMENTS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


def _check_words(words: list[str]) -> list[str]:
    for index, word in enumerate(words):
        if not word.strip():
            raise refusal("empty_string", "Invalid '{param}': empty string. Every word needs a letter.", f"[{index}]")
        if len(word) > MAX_BAD_WORD_CHARS:
            raise refusal(
                "string_above_max_length",
                f"Invalid '{{param}}': string too long. Expected a string with maximum length {MAX_BAD_WORD_CHARS}, "
                f"but got a string with length {len(word)} instead.",
                f"[{index}]",
            )
    return words


def _check_truncation(num_tokens: int) -> int:
    if num_tokens == 0:
        raise refusal(
            "integer_below_min_value",
            "Invalid '{param}': expected -1, for as many tokens as the model takes, or a number from 1 on.",
        )
    return num_tokens


def _check_template_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    if len(arguments) > MAX_TEMPLATE_ARGUMENTS or len(orjson.dumps(arguments)) > MAX_TEMPLATE_BYTES:
        raise refusal(
            "object_above_max_properties",
            f"Invalid '{{param}}': expected an object with at most {MAX_TEMPLATE_ARGUMENTS} properties and "
            f"{MAX_TEMPLATE_BYTES} bytes.",
        )
    for name in arguments:
        if name in _OWN_TEMPLATE_ARGUMENTS:
            raise refusal(
                "unsupported_parameter",
                "Unsupported parameter: '{param}' is set by the service. Use the field of the request.",
                f".{name}",
            )
    return arguments


def texts_within(value: Any) -> Iterable[str]:
    """Yield every text in a JSON value, keys left out."""
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            pending.extend(found.values())
        elif isinstance(found, list):
            pending.extend(found)


Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Truncation = Annotated[int, Field(ge=-1, le=2**31 - 1), AfterValidator(_check_truncation)]
RepetitionSize = Annotated[int, Field(ge=0, le=MAX_REPETITION)]
TemplateArguments = Annotated[dict[str, Any], AfterValidator(_check_template_arguments)]


class RepetitionDetection(WireModel):
    """An answer ends when it repeats a pattern: the pattern's size in tokens, and the number of times in a row."""

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
        """Return those of these options that are given, as JSON values."""
        return self.model_dump(include=set(SamplingOptions.model_fields), exclude_none=True)

    def check_lengths(self, max_tokens: int | None) -> None:
        """Check that an answer can have as many tokens as it must have."""
        if self.min_tokens and max_tokens is not None and self.min_tokens > max_tokens:
            raise refusal(
                "integer_above_max_value",
                f"Invalid '{{param}}': it is larger than the greatest number of tokens, {max_tokens}.",
                "min_tokens",
            )


class PromptOptions(OperationRequest):
    """How a prompt becomes tokens, and in whose cache they are kept."""

    truncate_prompt_tokens: Truncation | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None

    # Known, and refused when set.
    request_id: Any = None
    mm_processor_kwargs: Any = None

    def count_cut(self, num_tokens: int, num_prompts: int, max_model_len: int) -> int:
        """Return how many of the `num_tokens` of the prompts are cut off: 0 where prompts are not truncated."""
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
        """Return the names of the fields that hold the answer to a form."""
        wanted = getattr(self, "response_format", None)
        first = [] if wanted is None or wanted.type == "text" else ["response_format"]
        return first + [name for name in ("structured_outputs", *GUIDED) if getattr(self, name) is not None]

    @property
    def has_foreign_form(self) -> bool:
        """Whether the form of the answer must be said in other words for the engine."""
        return any(getattr(self, name) is not None for name in GUIDED) or is_foreign(self.structured_outputs)

    def shown_tokens_field(self) -> str | None:
        """Return the field that asks for the answer's tokens or the prompt's beside the text, None where none does."""
        names = ("return_token_ids", "prompt_logprobs", "return_prompt_text")
        return next((name for name in names if getattr(self, name, None) not in (None, False)), None)

    def prompt_logprobs_field(self) -> str | None:
        """Return the field that has log probabilities of the prompt computed, None where none does."""
        if self.prompt_logprobs is not None:
            return "prompt_logprobs"
        number = "top_logprobs" if "top_logprobs" in type(self).model_fields else "logprobs"
        return number if getattr(self, "echo", None) and getattr(self, number, None) is not None else None

    def check_options(self, refused: Mapping[str, tuple[Any, str]], *, stream: bool, logprobs: bool) -> None:
        """Check the options that depend on others of the request."""
        check_refused(self, refused)
        check_one_form(self.forms())
        if self.prompt_logprobs is not None and stream:
            raise refusal(
                "invalid_value", "The '{param}' parameter is only allowed when 'stream' is off.", "prompt_logprobs"
            )
        if (name := self.prompt_logprobs_field()) is not None and (getattr(self, "n", None) or 1) > 1:
            raise refusal(
                "invalid_value",
                "Log probabilities of the prompt, which '{param}' asks for, are only allowed when 'n' is 1: the model "
                "would read the prompt anew for each choice.",
                name,
            )
        if self.logprob_token_ids and not logprobs:
            raise refusal(
                "invalid_value", "The '{param}' parameter is only allowed when 'logprobs' is set.", "logprob_token_ids"
            )


class ChatOptions(GenerationOptions):
    """vLLM's options of a chat: what its template gets, and what the answer shows."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = None
    documents: Annotated[list[dict[str, str]], Field(fail_fast=True, max_length=MAX_DOCUMENTS)] | None = None
    chat_template_kwargs: TemplateArguments | None = None
    include_reasoning: bool | None = None
    return_prompt_text: bool | None = None

    # Known, and refused when set.
    chat_template: Any = None
    media_io_kwargs: Any = None
    return_assistant_tokens_mask: Any = None

    def check_prompt_end(self) -> None:
        """Check that the prompt ends in one way."""
        if self.continue_final_message and self.add_generation_prompt:
            raise refusal(
                "invalid_parameter_combination",
                "Setting 'continue_final_message' and 'add_generation_prompt' at the same time is not supported.",
                "continue_final_message",
            )

    def template_texts(self) -> list[str]:
        """Return every text that the template may put into the prompt beside the messages."""
        return [*texts_within(self.documents), *texts_within(self.chat_template_kwargs)]


class EmbeddingOptions(PromptOptions):
    """vLLM's options of embeddings: how vectors are made, and the bytes of those in base64."""

    use_activation: bool | None = None
    embed_dtype: Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"] | None = None
    endianness: Literal["native", "big", "little"] | None = None

    # Known, and refused when set.
    messages: Any = None
    padding: Any = None
    priority: Any = None
