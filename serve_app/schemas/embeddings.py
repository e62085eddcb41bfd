"""The body of POST /v1/embeddings, and its answer."""

from typing import Annotated, Literal, Self

import orjson
from pydantic import Field, model_validator
from typing_extensions import TypedDict

from serve_app.schemas.base import ModelId, refusal
from serve_app.schemas.engine_options import EmbeddingOptions
from serve_app.schemas.prompts import Input, count_tokens, texts_in
from serve_app.schemas.refused_options import REFUSED_IN_EMBEDDINGS, check_refused

MAX_TOKENS = 300_000

_DROPPED = frozenset({"cache_salt", *REFUSED_IN_EMBEDDINGS})


class EmbeddingRequest(EmbeddingOptions):
    """Texts, or tokens in their place, to be turned into vectors."""

    model: ModelId
    input: Input
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    user: str | None = None

    @model_validator(mode="after")
    def _check_input(self) -> Self:
        check_refused(self, REFUSED_IN_EMBEDDINGS)
        num_tokens, about = count_tokens(self.input), "about " if texts_in(self.input) else ""
        if num_tokens > MAX_TOKENS:
            raise refusal(
                "max_tokens_per_request",
                f"Invalid '{{param}}': too many tokens. Expected at most {MAX_TOKENS} tokens in one request, but got "
                f"{about}{num_tokens} instead.",
                "input",
            )
        for index, text in enumerate(texts_in(self.input)):
            if not text:
                raise refusal(
                    "empty_string",
                    "Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string "
                    "instead.",
                    "input" if isinstance(self.input, str) else f"input[{index}]",
                )
        return self

    def prompt_estimate_tokens(self) -> int:
        """Return about how many tokens the inputs have."""
        return count_tokens(self.input)

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the body for the engine: `raw`, the bytes that this was parsed from, with truncation asked for.

        -1 stands for the length of the model's context. A number that the client sends comes later, and counts.
        """
        given = self.model_fields_set
        if given.isdisjoint(_DROPPED) and not any(getattr(self, name) is None for name in given):
            return b'{"truncate_prompt_tokens":-1,' + raw.lstrip()[1:]
        body = {key: value for key, value in orjson.loads(raw).items() if value is not None and key not in _DROPPED}
        return orjson.dumps({"truncate_prompt_tokens": -1, **body})


class Embedding(TypedDict):
    """The vector of one input: numbers, or the base64 form of float32 numbers."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(TypedDict):
    """How many tokens the inputs took."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    """The vectors, in the order of the inputs. The `openai` package's type knows no base64."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
