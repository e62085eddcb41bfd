"""Texts, or tokens in their place, as the inputs of completions and embeddings."""

from typing import Annotated, Any, LiteralString

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic.config import JsonDict

from serve_app.schemas.base import estimate_tokens, refusal

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


OF_INTEGERS: JsonDict = {"items": {"type": "integer"}}
"""What the schema of a list of tokens says of them; `check_tokens` is what checks them."""
Tokens = Annotated[list[Any], Field(min_length=1, json_schema_extra=OF_INTEGERS), AfterValidator(check_tokens)]
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
