"""The body of POST /v1/keywords, and its answer."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from serve_app.schemas.base import ModelId, OperationRequest


class KeywordRequest(OperationRequest):
    """A text, and how many of its words are wanted."""

    model: ModelId
    input: Annotated[str, Field(min_length=1)]
    top_n: Annotated[int, Field(ge=1, le=100)] = 2

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the bytes that this was parsed from."""
        return raw


class Keywords(TypedDict):
    """The words that say most, best first."""

    model: str
    keywords: list[str]
