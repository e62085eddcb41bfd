"""What all wire models share: strictness, refusals, sampling parameters, and the queries of lists.

Types are as strict as in JSON: no "1" for 1, no true for 1, but 1 for 1.0. Tags that start with "?" name the branch of
a union in error messages, and are no part of a field's path.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, LiteralString

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

MAX_STOP_SEQUENCES = 4
MAX_STOP_CHARS = 1024
MAX_LOGIT_BIASES = 300
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512
NAME_PATTERN = r"^[a-zA-Z0-9_-]+$"
# The engine takes no smaller top_p than this for 0, nor a temperature of 0 with more than one choice.
SMALLEST_TOP_P = 1e-6
SMALLEST_TEMPERATURE = 0.01

_TOKEN_ID = re.compile(r"[0-9]{1,10}")


class WireModel(BaseModel):
    """A JSON object that a client sends; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class OperationRequest(WireModel):
    """The body of a request to an operation."""

    @property
    def is_stream(self) -> bool:
        """Whether the client asks for server-sent events; some operations have none."""
        return bool(getattr(self, "stream", False))


def refusal(code: LiteralString, sentence: str, at: str = "") -> PydanticCustomError:
    """Return the error that a validator raises for one of our own rules.

    `code` is the error's code on the wire. In `sentence`, "{param}" stands for the field's path. `at` extends the path
    of the validated value.
    """
    return PydanticCustomError(code, "refused", {"sentence": sentence, "at": at})


def empty_string(at: str = "") -> PydanticCustomError:
    """Return the refusal of an empty string."""
    return refusal(
        "empty_string",
        "Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        at,
    )


def clash(first: str, second: str, at: str, advice: LiteralString = "") -> PydanticCustomError:
    """Return the refusal of two fields that exclude each other."""
    sentence = f"Setting '{first}' and '{second}' at the same time is not supported.{advice}"
    return refusal("invalid_parameter_combination", sentence, at)


def only_when(condition: LiteralString, at: str) -> PydanticCustomError:
    """Return the refusal of a field that another one must allow."""
    return refusal("invalid_value", f"The '{{param}}' parameter is only allowed when {condition}.", at)


def unsupported(at: str, where: LiteralString = "with this model") -> PydanticCustomError:
    """Return the refusal of a known field."""
    return refusal("unsupported_parameter", f"Unsupported parameter: '{{param}}' is not supported {where}.", at)


def unsupported_value(value: str, supported: LiteralString, at: str = ".type") -> PydanticCustomError:
    """Return the refusal of a known value of a field."""
    return refusal(
        "unsupported_value",
        f"Unsupported value: '{{param}}' does not support '{value}' with this model. Supported values are: "
        f"{supported}.",
        at,
    )


def check_string(text: str, max_chars: int, at: str) -> None:
    """Check the length of a string."""
    if len(text) > max_chars:
        raise refusal(
            "string_above_max_length",
            f"Invalid '{{param}}': string too long. Expected a string with maximum length {max_chars}, but got a "
            f"string with length {len(text)} instead.",
            at,
        )


def _check_stop(stop: str | list[str]) -> str | list[str]:
    sequences = [stop] if isinstance(stop, str) else stop
    for index, sequence in enumerate(sequences):
        at = "" if isinstance(stop, str) else f"[{index}]"
        if not sequence:
            raise empty_string(at)
        check_string(sequence, MAX_STOP_CHARS, at)
    return stop


def check_size(value: dict[str, Any], limit: int) -> None:
    """Check that an object has at most `limit` properties."""
    if len(value) > limit:
        raise refusal(
            "object_above_max_properties",
            f"Invalid '{{param}}': too many properties. Expected an object with at most {limit} properties, but got "
            f"an object with {len(value)} properties instead.",
        )


def _check_logit_bias(biases: dict[str, Any]) -> dict[str, Any]:
    check_size(biases, MAX_LOGIT_BIASES)
    for token, bias in biases.items():
        if not _TOKEN_ID.fullmatch(token):
            raise refusal("invalid_value", "Invalid key in '{param}': every key must be a token ID, an integer.")
        if type(bias) not in (int, float):
            raise refusal("invalid_type", "Invalid type in '{param}': every bias must be a number.", f".{token}")
        if not -100 <= bias <= 100:
            raise refusal(
                "decimal_above_max_value" if bias > 100 else "decimal_below_min_value",
                "Invalid '{param}': every bias must be between -100 and 100.",
                f".{token}",
            )
    return biases


def check_metadata_value(value: str) -> None:
    """Check the length of a value of metadata or attributes."""
    if len(value) > MAX_METADATA_VALUE_CHARS:
        raise refusal(
            "string_above_max_length",
            f"Invalid value in '{{param}}': string too long. Expected values with maximum length "
            f"{MAX_METADATA_VALUE_CHARS}, but got one with length {len(value)} instead.",
        )


def _check_metadata(pairs: dict[str, Any]) -> dict[str, Any]:
    check_size(pairs, MAX_METADATA_PAIRS)
    for key, value in pairs.items():
        if len(key) > MAX_METADATA_KEY_CHARS:
            raise refusal(
                "string_above_max_length",
                f"Invalid key in '{{param}}': string too long. Expected keys with maximum length "
                f"{MAX_METADATA_KEY_CHARS}, but got one with length {len(key)} instead.",
            )
        if not isinstance(value, str):
            raise refusal("invalid_type", "Invalid type in '{param}': expected every value to be a string.")
        check_metadata_value(value)
    return pairs


ModelId = Annotated[str, Field(min_length=1, max_length=256)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
NumChoices = Annotated[int, Field(ge=1, le=128)]
MaxTokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)]
Stop = Annotated[
    Annotated[str, Tag("?string")]
    | Annotated[list[str], Field(fail_fast=True, max_length=MAX_STOP_SEQUENCES), Tag("?array of strings")],
    AfterValidator(_check_stop),
]
LogitBias = Annotated[dict[str, Any], AfterValidator(_check_logit_bias)]
Metadata = Annotated[dict[str, Any], AfterValidator(_check_metadata)]


CacheKey = Annotated[str, Field(max_length=1024)]
CacheRetention = Literal["in_memory", "24h"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
SafetyIdentifier = Annotated[str, Field(max_length=64)]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]


class StreamOptions(WireModel):
    """What a stream contains besides the answer."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = None


def check_stream_options(options: WireModel | None, stream: bool | None) -> None:
    """Check that stream options are only sent with a stream."""
    if options is not None and not stream:
        raise only_when("'stream' is enabled", "stream_options")


def check_unsupported(request: WireModel, names: Iterable[str], where: LiteralString) -> None:
    """Check that known fields that are not supported are left out."""
    for name in names:
        if getattr(request, name) is not None:
            raise unsupported(name, where)


def estimate_tokens(texts: Iterable[str]) -> int:
    """Return about how many tokens texts take: one for four characters of ASCII, or for 1.5 of other scripts."""
    return sum(len(text) // 4 + 1 if text.isascii() else len(text) * 2 // 3 + 1 for text in texts)


_Cursor = Annotated[str | None, AfterValidator(lambda cursor: cursor or None)]


class PageQuery(WireModel):
    """The query of a list in pages: newest first, unless `order` is "asc"."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: _Cursor = None

    @property
    def is_ascending(self) -> bool:
        """Whether the oldest items come first."""
        return self.order == "asc"


class TwoWayQuery(PageQuery):
    """The query of a list that can also be read backwards, before an item; `after` wins."""

    before: _Cursor = None


MAX_INPUTS = 2048
MAX_TOKEN_ID = 2**31 - 1


def check_tokens(tokens: list[Any]) -> list[int]:
    """Check that a list contains token ids, and return it."""
    # A prompt may have a million of them: three passes in C are six times as fast as a validator for each.
    if not tokens or (set(map(type, tokens)) == {int} and min(tokens) >= 0 and max(tokens) <= MAX_TOKEN_ID):
        return tokens
    index = next(i for i, token in enumerate(tokens) if type(token) is not int or not 0 <= token <= MAX_TOKEN_ID)
    token, at = tokens[index], f"[{index}]"
    if type(token) is not int:
        raise refusal("invalid_type", "Invalid type for '{param}': expected an integer.", at)
    is_above = token > 0
    code: LiteralString = "integer_above_max_value" if is_above else "integer_below_min_value"
    side, bound = ("above maximum", f"<= {MAX_TOKEN_ID}") if is_above else ("below minimum", ">= 0")
    raise refusal(
        code, f"Invalid '{{param}}': integer {side} value. Expected a value {bound}, but got {token} instead.", at
    )


def kind_of_input(value: Any) -> str:
    """Return the tag of the `Input` that a value looks most like, by its first element."""
    if not isinstance(value, list):
        return "?string or array"
    first = value[0] if value else ""
    if isinstance(first, list):
        return "?array of token arrays"
    return "?array of strings" if isinstance(first, str) else "?array of tokens"


Tokens = Annotated[list[Any], Field(min_length=1), AfterValidator(check_tokens)]
Texts = Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS)]
TokenArrays = Annotated[list[Tokens], Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS)]
Input = Annotated[
    Annotated[str, Tag("?string or array")]
    | Annotated[Texts, Tag("?array of strings")]
    | Annotated[Tokens, Tag("?array of tokens")]
    | Annotated[TokenArrays, Tag("?array of token arrays")],
    Discriminator(kind_of_input),
]


def count_inputs(value: str | list[str] | list[int] | list[list[int]]) -> int:
    """Return how many inputs there are."""
    return 1 if isinstance(value, str) or isinstance(value[0], int) else len(value)


def texts_in(value: str | list[str] | list[int] | list[list[int]]) -> list[str]:
    """Return the inputs that are texts."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value[0], str) else []


def count_tokens(value: str | list[str] | list[int] | list[list[int]]) -> int:
    """Return the number of tokens of the inputs: exact for tokens, an estimate for texts."""
    if isinstance(value, str) or isinstance(value[0], str):
        return estimate_tokens(texts_in(value))
    return len(value) if isinstance(value[0], int) else sum(len(item) for item in value if isinstance(item, list))
