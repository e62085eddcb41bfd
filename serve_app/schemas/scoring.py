"""The bodies of POST /v1/rerank and /v1/score, and their answers: those of Jina, Cohere and vLLM.

Both reach the engine in one dialect: `queries` and `documents` as lists of texts, with one query or one a document.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

import orjson
from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import TypedDict

from serve_app.schemas.base import (
    ModelId,
    OperationRequest,
    Refused,
    User,
    WireModel,
    check_unsupported,
    empty_string,
    invalid,
    refusal,
)
from serve_app.schemas.engine_options import Truncation
from serve_app.schemas.inputs import MAX_INPUTS

MAX_INSTRUCTION_CHARS = 8192

_OPTIONS = ("instruction", "max_tokens_per_doc", "max_tokens_per_query", "truncate_prompt_tokens", "use_activation")
_PAIRS = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))


class TextObject(WireModel):
    """A text as an object.

    Args:
        text: the text.
    """

    text: str


def _kind_of_text(value: Any) -> str:
    return "?object" if isinstance(value, dict) else "?string or array"


def _kind_of_texts(value: Any) -> str:
    return "?array" if isinstance(value, list) else _kind_of_text(value)


_String = Annotated[str, Tag("?string or array")]
_Object = Annotated[TextObject, Tag("?object")]
Text = Annotated[_String | _Object, Discriminator(_kind_of_text)]
Texts = Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS)]
TextOrTexts = Annotated[_String | _Object | Annotated[Texts, Tag("?array")], Discriminator(_kind_of_texts)]
NumTokens = Annotated[int, Field(ge=0, le=2**31 - 1)]


class ScoringRequest(OperationRequest):
    """A request to score how well texts match.

    Texts are cut at the model's context, or at `max_tokens_per_query` and `max_tokens_per_doc` where these are above 0.
    `use_activation` and `instruction` are for cross-encoders.

    Args:
        instruction: the task in words, for cross-encoders that take one.
        max_tokens_per_doc: cuts each document to this many tokens; 0 is no limit.
        max_tokens_per_query: cuts the query to this many tokens; 0 is no limit.
        truncate_prompt_tokens: cuts query and document together to this many tokens; -1 cuts them to the model's
            context.
        use_activation: `false` returns a cross-encoder's raw scores.
    """

    model: ModelId
    instruction: Annotated[str, Field(max_length=MAX_INSTRUCTION_CHARS)] | None = None
    max_tokens_per_doc: NumTokens | None = None
    max_tokens_per_query: NumTokens | None = None
    truncate_prompt_tokens: Truncation | None = None
    use_activation: bool | None = None
    user: User | None = None

    @abstractmethod
    def left_texts(self) -> list[str]:
        """Return the queries: one, or as many as there are documents."""

    @abstractmethod
    def right_texts(self) -> list[str]:
        """Return the documents to be scored."""

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the body in the engine's dialect."""
        options = {name: getattr(self, name) for name in _OPTIONS if getattr(self, name) is not None}
        return orjson.dumps({"queries": self.left_texts(), "documents": self.right_texts(), **options, **self._more()})

    def _more(self) -> dict[str, Any]:
        return {}


class RerankRequest(ScoringRequest):
    """A query, and the documents to be ranked by it.

    Args:
        query: the text to rank the documents by.
        documents: the documents: texts, or objects with a `text`.
        top_n: how many documents to return; 0 or left out returns all.
        return_documents: whether results contain the documents' texts.
    """

    example: ClassVar[dict[str, Any]] = {
        "model": "all-minilm-l6-v2",
        "query": "a fruit",
        "documents": ["an apple", "a car"],
    }

    query: Text
    documents: Texts
    top_n: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    return_documents: bool | None = True

    # Known, and refused when set.
    rank_fields: Refused = None
    max_chunks_per_doc: Refused = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_unsupported(self, ("rank_fields", "max_chunks_per_doc"), "by this service")
        if not _text_of(self.query):
            raise empty_string("query")
        return self

    def left_texts(self) -> list[str]:
        """Return the query."""
        return [_text_of(self.query)]

    def right_texts(self) -> list[str]:
        """Return the documents."""
        return [_text_of(document) for document in self.documents]

    def _more(self) -> dict[str, Any]:
        return {"top_n": self.top_n or len(self.documents), "return_documents": self.return_documents is not False}


class ScoreRequest(ScoringRequest):
    """Texts on the left and on the right, under one of vLLM's four pairs of names.

    Each text on the right is scored with the only text on the left, or with the one at the same index.

    Args:
        queries: the texts on the left: one, or one for each text on the right.
        documents: the texts on the right, which are scored with `queries`.
        items: another name of `documents`.
        text_1: another name of `queries`, used with `text_2`.
        text_2: another name of `documents`, used with `text_1`.
        data_1: another name of `queries`, used with `data_2`.
        data_2: another name of `documents`, used with `data_1`.
    """

    example: ClassVar[dict[str, Any]] = {
        "model": "all-minilm-l6-v2",
        "queries": "a fruit",
        "documents": ["an apple", "a car"],
    }

    queries: TextOrTexts | None = None
    documents: TextOrTexts | None = None
    items: TextOrTexts | None = None
    text_1: TextOrTexts | None = None
    text_2: TextOrTexts | None = None
    data_1: TextOrTexts | None = None
    data_2: TextOrTexts | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        given = {name for pair in _PAIRS for name in pair if getattr(self, name) is not None}
        if given not in map(set, _PAIRS):
            pairs = ", ".join(f"'{left}' and '{right}'" for left, right in _PAIRS)
            code = "missing_required_parameter" if len(given) < 2 else "invalid_parameter_combination"
            raise refusal(code, f"Give the texts under exactly one of these pairs of names: {pairs}.", "queries")
        num_left, num_right = len(self.left_texts()), len(self.right_texts())
        if num_left not in (1, num_right):
            raise invalid(
                f"Invalid '{{param}}': expected one text, or as many as the {num_right} that they are scored with, but "
                f"got {num_left}.",
                self._names()[0],
            )
        return self

    def _names(self) -> tuple[str, str]:
        return next(pair for pair in _PAIRS if all(getattr(self, name) is not None for name in pair))

    def left_texts(self) -> list[str]:
        """Return the texts on the left."""
        return _texts_of(getattr(self, self._names()[0]))

    def right_texts(self) -> list[str]:
        """Return the texts on the right."""
        return _texts_of(getattr(self, self._names()[1]))


def _text_of(value: str | TextObject) -> str:
    return value if isinstance(value, str) else value.text


def _texts_of(value: str | TextObject | list[str | TextObject]) -> list[str]:
    return [_text_of(text) for text in (value if isinstance(value, list) else [value])]


class ScoringUsage(TypedDict):
    """How many tokens the texts took."""

    prompt_tokens: int
    total_tokens: int


class RankedText(TypedDict):
    """A document's text."""

    text: str


class RankedDocument(TypedDict):
    """A document by its index in the request, and its score; `document` where `return_documents` is set."""

    index: int
    relevance_score: float
    document: NotRequired[RankedText]


class Ranking(TypedDict):
    """The best documents, best first."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: ScoringUsage


class Score(TypedDict):
    """The score of one pair of texts."""

    index: int
    object: Literal["score"]
    score: float


class ScoreList(TypedDict):
    """The scores, in the order of the texts on the right."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: ScoringUsage
