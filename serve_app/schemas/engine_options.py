"""vLLM's own options of a request, with the bounds that this service sets.

`docs/guides/options.md` names every field. Nothing here reads a tokenizer: the engine checks whether a token exists.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from serve_app.schemas.base import OperationRequest, Refused, WireModel, check_string, invalid, only_when, refusal
from serve_app.schemas.inputs import OF_INTEGERS, check_tokens
from serve_app.schemas.refused_options import check_refused
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
    """Ends an answer that repeats a pattern: the pattern's size in tokens, and how often it comes in a row.

    Args:
        max_pattern_size: the longest pattern to look for, in tokens; 0 turns the detection off.
        min_pattern_size: the shortest pattern to look for, in tokens.
        min_count: how often the pattern must come in a row.
    """

    max_pattern_size: RepetitionSize = 0
    min_pattern_size: RepetitionSize = 0
    min_count: RepetitionSize = 0

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.min_pattern_size > self.max_pattern_size:
            raise invalid("Invalid '{param}': it is larger than 'max_pattern_size'.", ".min_pattern_size")
        if self.max_pattern_size and self.min_count < 2:
            raise refusal(
                "integer_below_min_value",
                "Invalid '{param}': expected how often a pattern comes, 2 or more.",
                ".min_count",
            )
        return self


class SamplingOptions(OperationRequest):
    """Which tokens a model may write, and when it stops.

    Args:
        top_k: samples among this number of most likely tokens; 0 and -1 turn it off.
        min_p: samples among tokens with at least this probability, relative to the most likely one.
        repetition_penalty: above 1, tokens that came before become less likely.
        min_tokens: the answer does not end before this many tokens.
        ignore_eos: the answer continues past the model's own end, up to the max tokens.
        stop_token_ids: tokens that end the answer.
        include_stop_str_in_output: keeps the stop sequence in the text.
        bad_words: words that are never written.
        allowed_token_ids: the only tokens that may be written.
        skip_special_tokens: `false` shows special tokens in the text.
        spaces_between_special_tokens: `false` shows special tokens without spaces in between.
    """

    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: (
        Annotated[float, Field(ge=SMALLEST_REPETITION_PENALTY, le=LARGEST_REPETITION_PENALTY)] | None
    ) = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    stop_token_ids: (
        Annotated[
            list[Any], Field(max_length=MAX_STOP_TOKENS, json_schema_extra=OF_INTEGERS), AfterValidator(check_tokens)
        ]
        | None
    ) = None
    include_stop_str_in_output: bool | None = None
    bad_words: (
        Annotated[list[str], Field(fail_fast=True, max_length=MAX_BAD_WORDS), AfterValidator(_check_words)] | None
    ) = None
    allowed_token_ids: (
        Annotated[
            list[Any],
            Field(min_length=1, max_length=MAX_ALLOWED_TOKENS, json_schema_extra=OF_INTEGERS),
            AfterValidator(check_tokens),
        ]
        | None
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
    """How a prompt becomes tokens, and which cache keeps them.

    Args:
        truncate_prompt_tokens: cuts a longer prompt to this many tokens; -1 cuts it to what the model's context allows.
        truncation_side: the side that is cut off; `left` keeps the end of the prompt.
        add_special_tokens: whether the tokenizer adds its special tokens.
        cache_salt: a separate prefix cache within the account's own.
    """

    truncate_prompt_tokens: Truncation | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None

    # Known, and refused when set.
    request_id: Refused = None
    mm_processor_kwargs: Refused = None

    def count_cut(self, num_tokens: int, num_prompts: int, max_model_len: int) -> int:
        """Return how many of the `num_tokens` of the prompts are cut off, 0 where prompts are not truncated."""
        if self.truncate_prompt_tokens is None:
            return 0
        longest = max_model_len if self.truncate_prompt_tokens < 0 else self.truncate_prompt_tokens
        return max(0, num_tokens - longest * num_prompts)


class GenerationOptions(SamplingOptions, PromptOptions):
    """vLLM's options that chat and completions share.

    Args:
        thinking_token_budget: reasoning ends after this many tokens; -1 is no limit.
        logprob_token_ids: tokens whose log probabilities are returned at every place; needs `logprobs`.
        prompt_logprobs: returns the log probabilities of this number of most likely tokens at each place of the prompt.
        return_token_ids: returns the tokens of the prompt and of each choice.
        return_tokens_as_token_ids: log probabilities name tokens as `token_id:7`.
        stream_interval: how many tokens each chunk of a stream has.
        priority: from 1 on, the request waits for all requests of priority 0; higher is later.
        session_id: requests of one session go to the same replica, whose cache has their prefix.
        guided_json: the older name of `structured_outputs.json`.
        guided_regex: the older name of `structured_outputs.regex`.
        guided_choice: the older name of `structured_outputs.choice`.
        guided_grammar: the older name of `structured_outputs.grammar`.
    """

    thinking_token_budget: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    logprob_token_ids: (
        Annotated[
            list[Any], Field(max_length=MAX_LOGPROB_TOKENS, json_schema_extra=OF_INTEGERS), AfterValidator(check_tokens)
        ]
        | None
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
    use_beam_search: Refused = None
    length_penalty: Refused = None
    kv_transfer_params: Refused = None
    ec_transfer_params: Refused = None
    vllm_xargs: Refused = None
    guided_decoding_backend: Refused = None
    guided_whitespace_pattern: Refused = None
    routed_experts_prompt_start: Refused = None
    return_token_offsets: Refused = None
    mm_payload: Refused = None
    return_mm_kwargs: Refused = None
    watermarking: Refused = None

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
            raise invalid(
                "Log probabilities of the prompt, which '{param}' asks for, are only allowed when 'n' is 1: the model "
                "would read the prompt anew for each choice.",
                name,
            )
        if self.logprob_token_ids and not logprobs:
            raise only_when("'logprobs' is set", "logprob_token_ids")
