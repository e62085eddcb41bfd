"""What all wire models share: strictness, refusals, sampling parameters, and the queries of lists.

Types are as strict as in JSON: no "1" for 1, no true for 1, but 1 for 1.0. Tags that start with "?" name the branch of
a union in error messages, and are no part of a field's path.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, LiteralString

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Tag
from pydantic_core import PydanticCustomError

from deployments.models import reasoning

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


def invalid(sentence: str, at: str = "") -> PydanticCustomError:
    """Return the refusal of a value that a field cannot have; see `refusal`."""
    return refusal("invalid_value", sentence, at)


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
    return invalid(f"The '{{param}}' parameter is only allowed when {condition}.", at)


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
            raise invalid("Invalid key in '{param}': every key must be a token ID, an integer.")
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


ModelId = Annotated[str, Field(min_length=1, max_length=256, description="The id of the model.")]
Temperature = Annotated[
    float, Field(ge=0, le=2, description="How random the text is; 0 always takes the most likely token.")
]
TopP = Annotated[
    float, Field(ge=0, le=1, description="Samples among the most likely tokens that together have this probability.")
]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Seed = Annotated[
    int, Field(ge=-(2**63), le=2**63 - 1, description="Requests with the same seed and input get the same text.")
]
NumChoices = Annotated[int, Field(ge=1, le=128, description="How many answers to generate.")]
MaxTokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)]
Stop = Annotated[
    Annotated[str, Tag("?string")]
    | Annotated[list[str], Field(fail_fast=True, max_length=MAX_STOP_SEQUENCES), Tag("?array of strings")],
    AfterValidator(_check_stop),
    Field(description="A text, or up to four, at which the answer ends."),
]
LogitBias = Annotated[
    dict[str, Any],
    AfterValidator(_check_logit_bias),
    Field(description="Token ids with a number from -100 to 100, which makes each token less or more likely."),
]
Metadata = Annotated[
    dict[str, Any],
    AfterValidator(_check_metadata),
    Field(description="Up to 16 keys with texts of your own, which are returned unchanged."),
]
CacheKey = Annotated[
    str,
    Field(max_length=1024, description="Requests with the same key go to the same replica, whose cache they share."),
]
CacheRetention = Annotated[Literal["in_memory", "24h"], Field(description="Accepted for compatibility; has no effect.")]
Ignored = Annotated[dict[str, Any], Field(description="Accepted for compatibility; has no effect.")]
Refused = Annotated[Any, Field(json_schema_extra={"refused": True})]
"""A known field that is refused when it is set. The OpenAPI document leaves it out."""
Effort = Annotated[
    reasoning.Effort,
    Field(
        description="How much the model reasons before it answers, if it can reason: the model has a budget for each."
    ),
]
SafetyIdentifier = Annotated[str, Field(max_length=128, description="Accepted for compatibility; has no effect.")]
User = Annotated[str, Field(description="Accepted for compatibility; has no effect.")]
ServiceTier = Annotated[
    Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"],
    Field(description="The request's priority: `flex` waits for others, `priority` goes first where a key may use it."),
]
TopLogprobs = Annotated[
    int, Field(ge=0, le=20, description="How many of the most likely tokens to return at each place.")
]


class StreamOptions(WireModel):
    """What a stream contains besides the answer.

    Args:
        include_usage: adds a last chunk with the token usage of the whole request.
        continuous_usage_stats: adds the usage so far to every chunk; needs `include_usage`.
        include_obfuscation: accepted for compatibility; streams have no padding.
    """

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
    """The query of a list in pages: newest first, unless `order` is "asc".

    Args:
        limit: how many objects to return.
        order: `desc` for newest first, `asc` for oldest first.
        after: the id of the last object of the previous page.
    """

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: _Cursor = None

    @property
    def is_ascending(self) -> bool:
        """Whether the oldest items come first."""
        return self.order == "asc"


class TwoWayQuery(PageQuery):
    """The query of a list that can also be read backwards, before an item; `after` wins.

    Args:
        before: the id of the first object of the following page, to read the list backwards.
    """

    before: _Cursor = None
