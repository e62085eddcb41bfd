"""The body of POST /v1/embeddings, and its answer."""

from typing import Annotated, Any, ClassVar, Literal, Self

import orjson
from pydantic import Field, model_validator
from typing_extensions import TypedDict

from serve_app.schemas.base import ModelId, Refused, User, empty_string, refusal
from serve_app.schemas.engine_options import PromptOptions
from serve_app.schemas.inputs import Input, count_tokens, texts_in
from serve_app.schemas.refused_options import REFUSED_IN_EMBEDDINGS, check_refused

MAX_TOKENS = 300_000

_DROPPED = frozenset({"cache_salt", *REFUSED_IN_EMBEDDINGS})


class EmbeddingRequest(PromptOptions):
    """Texts, or tokens in their place, to be turned into vectors.

    Args:
        input: the text to embed, several texts, or their tokens. The answer has one vector for each.
        encoding_format: `float` returns lists of numbers, `base64` the bytes of float32 numbers.
        dimensions: the length of the vectors, for models that can shorten them.
        use_activation: `false` returns the model's raw vectors, which mostly do not have length 1.
        embed_dtype: the type of the numbers in base64.
        endianness: the byte order of the numbers in base64.
    """

    example: ClassVar[dict[str, Any]] = {"model": "all-minilm-l6-v2", "input": ["one text", "another"]}

    use_activation: bool | None = None
    embed_dtype: Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"] | None = None
    endianness: Literal["native", "big", "little"] | None = None

    # Known, and refused when set.
    messages: Refused = None
    padding: Refused = None
    priority: Refused = None

    model: ModelId
    input: Input
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    user: User | None = None

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
                raise empty_string("input" if isinstance(self.input, str) else f"input[{index}]")
        return self

    def prompt_estimate_tokens(self) -> int:
        """Return about how many tokens the inputs have."""
        return count_tokens(self.input)

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the body for the engine: `raw`, which this was parsed from, cut to the model's context (-1).

        A number that the client sends comes later in the body, and counts.
        """
        given = self.model_fields_set
        if given.isdisjoint(_DROPPED) and not any(getattr(self, name) is None for name in given):
            return b'{"truncate_prompt_tokens":-1,' + raw.lstrip()[1:]
        body = {key: value for key, value in orjson.loads(raw).items() if value is not None and key not in _DROPPED}
        return orjson.dumps({"truncate_prompt_tokens": -1, **body})


class Embedding(TypedDict):
    """The vector of one input: numbers, or float32 numbers in base64."""

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
