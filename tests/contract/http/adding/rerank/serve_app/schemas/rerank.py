"""The body of POST /v1/rerank, and its answer."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from serve_app.schemas.base import ModelId, OperationRequest


class RerankRequest(OperationRequest):
    """A query, and the documents to be put in order by it."""

    model: ModelId
    query: Annotated[str, Field(min_length=1)]
    documents: Annotated[list[str], Field(min_length=1, max_length=1000)]


class RerankResult(TypedDict):
    """A document by its place in the request, and how well it fits."""

    index: int
    relevance_score: float


class Ranking(TypedDict):
    """The documents, best first."""

    model: str
    results: list[RerankResult]
