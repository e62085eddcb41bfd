"""Plain input for models: text, several texts, or tokens in their place."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from serve_app.schemas.base import estimate_tokens

TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]


def kind_of_input(value: Any) -> str:
    """Return which of the forms of `Input` a value looks most like, by its first element."""
    if not isinstance(value, list):
        return "?string or array"
    first = value[0] if value else ""
    if isinstance(first, list):
        return "?array of token arrays"
    return "?array of strings" if isinstance(first, str) else "?array of tokens"


Tokens = Annotated[list[TokenId], Field(fail_fast=True, min_length=1)]
Texts = Annotated[list[str], Field(fail_fast=True, min_length=1)]
TokenArrays = Annotated[list[Tokens], Field(fail_fast=True, min_length=1)]
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
    return [value] if isinstance(value, str) else [item for item in value if isinstance(item, str)]


def count_tokens(value: str | list[str] | list[int] | list[list[int]]) -> int:
    """Return how many tokens the inputs have: exact for tokens, about for texts."""
    if isinstance(value, str) or isinstance(value[0], str):
        return estimate_tokens(texts_in(value))
    return sum(len(item) if isinstance(item, list) else 1 for item in value)
