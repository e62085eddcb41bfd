"""The search over files as a tool of a response, and its calls as items."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from deployments.operations import Operation
from serve_app.schemas.base import WireModel
from serve_app.schemas.file_filters import Filters, NumResults, RankingOptions, StoreId
from serve_app.schemas.responses.built_in_tool import RESULTS_NOT_KEPT, BuiltInItem, BuiltInTool, ItemId, Shown

MAX_VECTOR_STORES = 10


class FileSearchTool(BuiltInTool):
    """A search in vector stores with queries of the model.

    Args:
        vector_store_ids: the vector stores to search.
        max_num_results: how many results a search returns at most.
        filters: searches only files whose attributes fulfil these conditions.
    """

    tool = Operation.FILE_SEARCH
    type: Literal["file_search"]
    vector_store_ids: Annotated[list[StoreId], Field(fail_fast=True, min_length=1, max_length=MAX_VECTOR_STORES)]
    max_num_results: NumResults | None = None
    ranking_options: RankingOptions | None = None
    filters: Filters | None = None


class FileSearchResult(WireModel):
    """A passage that a search found.

    Args:
        file_id: the file's id.
        filename: the file's name.
        text: the passage.
        score: how well the passage matches, from 0 to 1.
        attributes: the file's attributes.
        vector_store_id: the vector store that the file is in.
    """

    file_id: str | None = None
    filename: str | None = None
    text: str | None = None
    score: float | None = None
    attributes: dict[str, Any] | None = None
    vector_store_id: str | None = None


class FileSearchCallItem(BuiltInItem):
    """A call of the file search.

    Args:
        queries: the texts that the model searched for.
        results: the passages that were found.
        status: the state of the call.
    """

    id_prefix = "fs"
    type: Literal["file_search_call"]
    id: ItemId
    queries: Annotated[list[str], Field(fail_fast=True, max_length=64)]
    results: Annotated[list[FileSearchResult], Field(fail_fast=True, max_length=64)] | None = None
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"] | None = None

    @classmethod
    def show(cls, item: Mapping[str, Any]) -> Shown:
        """Return the queries, and the results where the item has them."""
        results = [f"{one.get('filename')}\n{one.get('text')}" for one in item.get("results") or ()]
        arguments = orjson.dumps({"queries": item.get("queries") or []}).decode()
        return "file_search", arguments, "\n\n".join(results) or RESULTS_NOT_KEPT
