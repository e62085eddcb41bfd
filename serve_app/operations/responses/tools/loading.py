"""The tools of one response, in the order of their places, and the client's functions among them.

Deferred functions are hidden from the model until a search loads them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from serve_app.errors.api import BadRequest
from serve_app.operations.responses.events.writer import Item
from serve_app.schemas.responses.functions import ClientBuiltIn, ClientFunction, ClientTool
from serve_app.schemas.responses.items import TOOL_SEARCH_OUTPUT
from serve_app.schemas.responses.tools import MAX_FUNCTIONS, Tool
from serve_app.schemas.responses.updates import ADDITIONAL_TOOLS
from serve_app.schemas.tools import MAX_TOOLS, called_name

NOTHING_FOUND = "No tool was found. Search again with other words, or go on without."
_TOOL: TypeAdapter[Tool] = TypeAdapter(Tool)


@dataclass(frozen=True, slots=True)
class PlacedTool:
    """A tool and its path in the request. `is_later` if an item brought it, `is_found` if that was a search's."""

    tool: Tool
    at: str
    is_later: bool = False
    is_found: bool = False


def placed_tools(tools: Iterable[Tool] | None, items: Sequence[Item], own_from: int = 0) -> list[PlacedTool]:
    """Return the tools of a request, then those of the conversation's items; its own items begin at `own_from`."""
    placed = [PlacedTool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())]
    known: dict[bytes, Tool] = {}  # A conversation may bring the same tools in each turn.
    for index, item in enumerate(items):
        if item["type"] in (ADDITIONAL_TOOLS, TOOL_SEARCH_OUTPUT):
            at = f"input[{index - own_from}].tools" if index >= own_from else None
            is_found = item["type"] == TOOL_SEARCH_OUTPUT
            placed += [
                PlacedTool(tool, "input" if at is None else f"{at}[{place}]", is_later=True, is_found=is_found)
                for place, tool in _read_tools(item, known)
            ]
    return placed


def _read_tools(item: Item, known: dict[bytes, Tool]) -> Iterator[tuple[int, Tool]]:
    """Yield the tools of an item with their places; one that an earlier version stored may not be valid now.

    `known` has those that were read before, by their JSON.
    """
    for place, tool in enumerate(_dicts(item.get("tools"))):
        sent = orjson.dumps(tool)
        if sent not in known:
            with suppress(ValidationError):
                known[sent] = _TOOL.validate_python(tool)
        if sent in known:
            yield place, known[sent]


def found_text(tools: Any) -> str:
    """Return what the model reads of the tools that a search has found: their definitions are among its tools."""
    names = []
    for tool in _dicts(tools):
        name, functions = tool.get("name"), _dicts(tool.get("tools"))
        if tool.get("type") == "namespace":
            names += [called_name(str(name), str(one.get("name"))) for one in functions]
        else:
            names.append(str(name or tool.get("type")))
    return f"These tools can be called now: {', '.join(names)}." if names else NOTHING_FOUND


def _dicts(value: Any) -> list[Item]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class ClientFunctions:
    """The functions of the client in one response; `deferred` has those that a search may load, by name.

    Their order never changes, and those that are loaded come last: so the prompts of two turns begin alike.

    Raises:
        BadRequest: there are more than `MAX_FUNCTIONS`.
    """

    def __init__(self, placed: Iterable[PlacedTool] = ()) -> None:
        self.deferred: dict[str, ClientFunction] = {}
        self._all: dict[str, ClientFunction] = {}
        self._first: list[ClientFunction] = []
        self._names_of_first: set[str] = set()
        self._loaded: dict[str, ClientFunction] = {}
        self._latest: dict[str, None] = {}
        for one in placed:
            if isinstance(one.tool, ClientTool):
                self._add(one, one.tool.functions(one.at))
            if len(self._all) > MAX_FUNCTIONS:
                raise BadRequest(
                    f"Invalid '{one.at}': a request and its conversation have at most {MAX_FUNCTIONS} functions "
                    "together, those of namespaces included. Bring fewer, or begin a new conversation.",
                    param=one.at,
                    code="array_above_max_length",
                )

    def _add(self, placed: PlacedTool, functions: Iterable[ClientFunction]) -> None:
        for function in functions:
            self._all.setdefault(function.called, function)
            if function.is_deferred and not placed.is_found:
                self.deferred.setdefault(function.called, function)
            elif placed.is_later:
                self._load(self.deferred.get(function.called, function))
            else:
                self._first.append(function)
                self._names_of_first.add(function.called)

    @property
    def names(self) -> frozenset[str]:
        """What the model calls them, deferred or not."""
        return frozenset(self._all)

    @property
    def in_namespaces(self) -> dict[str, tuple[str, str]]:
        """The namespaces and the names of functions, by their names for the model.

        A deferred function without a namespace is its own in calls, as OpenAI's Agents SDK expects it.
        """
        alone = {name: (one.tool.name, one.tool.name) for name, one in self.deferred.items()}
        return alone | {name: (one.namespace.name, one.tool.name) for name, one in self._all.items() if one.namespace}

    @property
    def built_ins(self) -> dict[str, type[ClientBuiltIn]]:
        """The built-in tools that the client runs, by their names for the model."""
        return {name: one.built_in for name, one in self._all.items() if one.built_in}

    def load(self, names: Iterable[str]) -> None:
        """Show deferred functions to the model from now on."""
        for name in names:
            if name in self.deferred:
                self._load(self.deferred[name])

    def _load(self, function: ClientFunction) -> None:
        if function.called not in self._names_of_first:
            self._loaded[function.called] = function
            self._latest.pop(function.called, None)
            self._latest[function.called] = None

    def shown(self, room: int = MAX_TOOLS) -> list[ClientFunction]:
        """Return the functions that the model sees; if there is no room for all, those that were loaded last."""
        left = max(0, room - len(self._first))
        latest = set(islice(reversed(self._latest), left))
        return [*self._first, *(function for name, function in self._loaded.items() if name in latest)]
