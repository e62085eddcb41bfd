"""The file search as a tool of a response.

The model writes queries, reads passages with markers, and cites a passage by its marker; a message gets a citation for
each marker of a search in this response.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from deployments.models.contract.engine import Usage
from deployments.operations import Operation
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.vector_stores.rows import StoredStore
from deployments.state.vector_stores.store import VectorStores
from deployments.tools.config import FileSearchConfig
from deployments.tools.search_index.index import SearchIndex
from deployments.tools.search_index.pair import IndexPair
from serve_app.errors.api import ApiError
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.tools.contract import (
    CheckedTool,
    CitingTool,
    SendEvent,
    ToolAnswer,
    ToolContext,
    ToolResources,
)
from serve_app.operations.vector_stores.embedder import Embedder
from serve_app.operations.vector_stores.search import FileSearch, Hit, SearchOptions
from serve_app.operations.vector_stores.service import VectorStoreService
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.file_filters import RankingOptions
from serve_app.schemas.json_schema import object_schema
from serve_app.schemas.responses.file_search import FileSearchTool

TYPE: Final = Operation.FILE_SEARCH
RESULTS: Final = "file_search_call.results"
_EVENT = "response.file_search_call"
_DEFAULT_RESULTS = 20
_OFFERED_QUERIES = 4
_OFFERED_QUERY_CHARS = 200
_MAX_QUERIES = 8
_MAX_QUERY_CHARS = 8192
_DESCRIPTION = (
    "Searches the files that belong to this conversation, by meaning and by words, and returns passages of them. Write "
    "each query as a statement or a question that stands for itself, with the words that the files would use; ask for "
    "different things in different queries. Each passage comes with a marker, such as 【1.2】. Put the marker of a "
    "passage right after each statement that rests on it."
)
_MARKER = re.compile(r"【(\d{1,4})\.(\d{1,3})(?:†[^】\n]{0,200})?】")
_NO_QUERY = 'The file search was called without a query. Call it with {"queries": ["..."]}.'
_NOTHING = "[Nothing was found. Try other words, or answer with what is known.]"
_MORE = "[There are more results, which do not fit.]"


class FileSearchBuiltIn:
    """The file search of this deployment, a `BuiltIn`."""

    type = TYPE

    def __init__(self, search: FileSearch) -> None:
        self.search = search

    async def open(self, tool: FileSearchTool, context: ToolContext) -> "FileSearchInUse":
        """Return the tool for one response."""
        return FileSearchInUse(self.search, context, tool)


def create_built_in(config: FileSearchConfig, resources: ToolResources) -> FileSearchBuiltIn:
    """Return the file search of a configuration."""
    files = resources.files
    stores = VectorStores(resources.database, files.vault, files.clock)
    embedder = Embedder(resources.directory, resources.salt, config.inputs_per_call)
    service = VectorStoreService(stores, files, config)
    return FileSearchBuiltIn(FileSearch(service, indexes_in(resources.place), embedder))


def indexes_in(place: ResolvedObjectStore) -> IndexPair:
    """Return the indexes of an object store, and of the second store if the service copies between them."""
    if place.other is None or place.copies == "provider":
        return IndexPair(SearchIndex(place))
    return IndexPair(SearchIndex(place), SearchIndex(place.other), place.name, place.other.name)


class FileSearchInUse(CheckedTool, CitingTool):
    """The file search in one response."""

    def __init__(self, search: FileSearch, context: ToolContext, tool: FileSearchTool) -> None:
        self._search = search
        self._context = context
        self._store_ids = tool.vector_store_ids
        self._stores: Sequence[StoredStore] = ()  # Known once it is checked.
        self._options = SearchOptions(
            max_num_results=tool.max_num_results or _DEFAULT_RESULTS,
            filters=tool.filters.model_dump() if tool.filters is not None else None,
            ranking=tool.ranking_options or RankingOptions(),
        )
        # The conversation has markers of earlier calls, which must differ from those of this response.
        self._num_calls = len(context.calls("file_search_call"))
        self._markers: dict[tuple[int, int], tuple[str, str]] = {}  # File ids and names.

    async def check(self) -> None:
        """Raise NotFound or BadRequest unless the vector stores exist and have not expired."""
        context = self._context
        self._stores = await self._search.find_stores(
            context.principal.account, self._store_ids, f"{context.param}.vector_store_ids"
        )

    def functions(self) -> list[Item]:
        """Return the function that the model may call."""
        query = {"type": "string", "description": "What to look for.", "maxLength": _OFFERED_QUERY_CHARS}
        queries = {"type": "array", "items": query, "minItems": 1, "maxItems": _OFFERED_QUERIES}
        parameters = object_schema({"queries": queries})
        return [{"type": "function", "function": {"name": TYPE, "description": _DESCRIPTION, "parameters": parameters}}]

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call."""
        head = {"id": new_id("fs"), "type": "file_search_call", "status": "in_progress"}
        return {**head, "queries": [], "results": None}

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Carry out a search."""
        self._num_calls += 1
        call = self._num_calls
        queries = _queries_of(arguments)
        send(f"{_EVENT}.in_progress")
        if not queries:
            return ToolAnswer({**item, "status": "failed"}, _NO_QUERY)
        item["queries"] = queries  # A stopped call shows them too.
        send(f"{_EVENT}.searching")
        try:
            found = await self._search.search(
                self._context.principal, self._stores, queries, self._options, request_id=item["id"]
            )
        except ApiError as error:
            return ToolAnswer({**item, "status": "failed"}, error.message)
        send(f"{_EVENT}.completed")
        finished = {**item, "status": "completed"}
        if RESULTS in self._context.include:
            finished["results"] = [_result_of(hit) for hit in found.hits]
        output = self._output_of(call, found.hits)
        return ToolAnswer(finished, output, Usage(prompt_tokens=found.num_tokens), list(self._markers.items()))

    def recall(self, cites: Any) -> None:
        """Restore the files of markers."""
        for (call, number), (file_id, filename) in cites or ():
            self._markers[call, number] = (file_id, filename)

    def _output_of(self, call: int, hits: Sequence[Hit]) -> str:
        """Return the results for the model: within half of its context, but at least one."""
        lines: list[str] = []
        left = self._context.max_model_len // 2
        for number, hit in enumerate(hits, 1):
            head = f"【{call}.{number}】 {hit.file.filename}"
            left -= estimate_tokens(
                [head, hit.text]
            )  # Together, the marker would make English count as another script.
            if lines and left < 0:
                lines.append(_MORE)
                break
            self._markers[call, number] = (hit.file.file_id, hit.file.filename)
            lines.append(f"{head}\n{hit.text}")
        return "\n\n".join(lines) or _NOTHING

    def cite(self, text: str) -> list[Item]:
        """Return the citations of a message: a file for each marker, at its position."""
        found = ((match.start(), (int(match[1]), int(match[2]))) for match in _MARKER.finditer(text))
        return [
            {
                "type": "file_citation",
                "index": index,
                "file_id": self._markers[marker][0],
                "filename": self._markers[marker][1],
            }
            for index, marker in found
            if marker in self._markers
        ]


def _queries_of(arguments: str) -> list[str]:
    """Return the queries in a call's arguments, which may be a single one or not JSON."""
    try:
        parsed: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return []
    given = (parsed.get("queries") or parsed.get("query")) if isinstance(parsed, dict) else None
    many = given if isinstance(given, list) else [given]
    return [query[:_MAX_QUERY_CHARS] for query in many if isinstance(query, str) and query.strip()][:_MAX_QUERIES]


def _result_of(hit: Hit) -> Item:
    return {
        "file_id": hit.file.file_id,
        "filename": hit.file.filename,
        "text": hit.text,
        "score": hit.score,
        "attributes": dict(hit.file.attributes),
    }
