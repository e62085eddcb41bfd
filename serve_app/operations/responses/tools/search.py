"""The search for deferred functions that the service carries out itself. It ranks them with BM25."""

import asyncio
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from deployments.tools.search_index.terms import words_of
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.tools.contract import CitingTool, SendEvent, ToolAnswer
from serve_app.operations.responses.tools.loading import ClientFunctions, found_text
from serve_app.operations.responses.tools.wire import functions_to_wire
from serve_app.schemas.responses.functions import ClientFunction, FunctionTool
from serve_app.schemas.responses.tool_search import ToolSearchTool, search_schema
from serve_app.validation.body import read_json_object

TYPE: Final = "tool_search"
MAX_FOUND = 8
_MAX_LISTED = 64
_MAX_LISTED_CHARS = 120
_MAX_INDEXED_CHARS = 1_000
_K1, _B = 1.2, 0.75
"""BM25's usual constants (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009)."""
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DESCRIPTION = (
    "Finds tools that are not listed here, and makes them callable. Search before you say that a tool is missing."
)
_NO_QUERY = 'The search was called without a query. Call it with {"query": "..."}.'


class SearchInUse(CitingTool):
    """The search within one response. What it finds is loaded into the client's functions."""

    def __init__(self, functions: ClientFunctions) -> None:
        self._functions = functions
        self._found: list[str] = []

    def functions(self) -> list[Item]:
        """Return the search as a function; none if there is nothing to find."""
        deferred = self._functions.deferred.values()
        if not deferred:
            return []
        description = "\n".join([f"{_DESCRIPTION} There are:", *_listed(deferred)])
        function = {"name": TYPE, "description": description, "parameters": search_schema()}
        return [{"type": "function", "function": function}]

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call."""
        head = {"id": new_id(ToolSearchTool.id_prefix), "type": ToolSearchTool.call_type, "status": "in_progress"}
        return {
            **head,
            "call_id": new_id("call"),
            "execution": "server",
            "arguments": read_json_object(arguments) or {},
        }

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Search, and load what is found."""
        query = item["arguments"].get("query")
        if not isinstance(query, str):
            return ToolAnswer({**item, "status": "incomplete"}, _NO_QUERY)
        found = await asyncio.to_thread(rank, query, list(self._functions.deferred.values()))
        self._load([one.called for one in found])
        tools = functions_to_wire(found)
        output = {
            "id": new_id("tso"),
            "type": "tool_search_output",
            "status": "completed",
            "call_id": item["call_id"],
            "execution": "server",
            "tools": tools,
        }
        return ToolAnswer({**item, "status": "completed"}, found_text(tools), cites=self._found, follows=output)

    def recall(self, cites: Any) -> None:
        """Load again what was found."""
        self._load(cites or [])

    def _load(self, names: Sequence[str]) -> None:
        self._found = [*dict.fromkeys((*self._found, *names))]
        self._functions.load(names)


def _listed(functions: Iterable[ClientFunction]) -> list[str]:
    """Return a line for each namespace and each function without one; of very many, the first."""
    lines = dict.fromkeys(
        _line(one.namespace.name, one.namespace.description)
        if one.namespace
        else _line(one.called, one.tool.description)
        for one in functions
    )
    listed = list(islice(lines, _MAX_LISTED))
    return listed if len(listed) == len(lines) else [*listed, f"- and {len(lines) - len(listed)} more"]


def _line(name: str, description: str | None) -> str:
    about = " ".join((description or "")[: 4 * _MAX_LISTED_CHARS].split())
    about = about if len(about) <= _MAX_LISTED_CHARS else about[: _MAX_LISTED_CHARS - 3] + "..."
    return f"- {name}: {about}" if about else f"- {name}"


def rank(query: str, functions: Sequence[ClientFunction]) -> list[ClientFunction]:
    """Return the functions that have words of a query, best first, at most `MAX_FOUND`."""
    wanted = set(_words(query))
    documents = [Counter(_words(_text_of(one))) for one in functions]
    lengths = [document.total() for document in documents]
    mean = sum(lengths) / max(1, len(lengths))
    scores: defaultdict[int, float] = defaultdict(float)
    for word in wanted:
        having = [index for index, document in enumerate(documents) if word in document]
        weight = math.log(1 + (len(documents) - len(having) + 0.5) / (len(having) + 0.5))
        for index in having:
            number = documents[index][word]
            scores[index] += weight * number * (_K1 + 1) / (number + _K1 * (1 - _B + _B * lengths[index] / mean))
    best = sorted(scores, key=lambda index: (-scores[index], index))
    return [functions[index] for index in best[:MAX_FOUND]]


def _words(text: str) -> Iterable[str]:
    return words_of(_CAMEL_CASE.sub(" ", text[:_MAX_INDEXED_CHARS]))


def _text_of(function: ClientFunction) -> str:
    """Return what is searched of a function: names, descriptions, and the names of its parameters."""
    schema = function.tool.parameters if isinstance(function.tool, FunctionTool) else None
    parameters = (schema or {}).get("properties")
    names = [function.tool.name, *(map(str, parameters) if isinstance(parameters, dict) else ())]
    about = [function.tool.description or ""]
    if function.namespace is not None:
        names.insert(0, function.namespace.name)
        about.append((function.namespace.description or "")[:_MAX_LISTED_CHARS])
    return "\n".join((*names, *about))
