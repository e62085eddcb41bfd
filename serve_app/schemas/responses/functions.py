"""The functions that the client runs, alone or in namespaces, and the names by which a model calls them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from serve_app.schemas.base import Name, WireModel, refusal
from serve_app.schemas.tools import MAX_TOOLS, JsonSchema

_MAX_NAME_CHARS = 64
_FINGERPRINT_CHARS = 8


class FunctionTool(WireModel):
    """A function that the client runs when the model asks for it; `parameters` is a JSON schema.

    Args:
        name: the function's name.
        description: what the function does, for the model.
        parameters: a JSON schema of the arguments, which are an object.
        strict: makes the arguments always fit the schema.
        output_schema: accepted for compatibility; has no effect.
        allowed_callers: accepted for compatibility; has no effect.
        defer_loading: accepted for compatibility; has no effect.
    """

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: JsonSchema | None = None
    strict: bool | None = None
    output_schema: JsonSchema | None = None
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    defer_loading: bool | None = None


class NamespaceTool(WireModel):
    """A group of functions, such as those of an MCP server that the client runs. A call names both.

    Args:
        name: the name of the group.
        description: what the group is for, for the model.
        tools: the functions of the group.
    """

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[list[FunctionTool], Field(fail_fast=True, max_length=MAX_TOOLS)]


@dataclass(frozen=True, slots=True)
class ClientFunction:
    """A function of the client: `called` is its name for the model, `at` its path in the request."""

    called: str
    tool: FunctionTool
    namespace: NamespaceTool | None
    at: str

    @property
    def description(self) -> str | None:
        """What the model reads of it: the first of a namespace also says what the namespace is for."""
        if self.namespace is None or not self.namespace.description or self.tool is not self.namespace.tools[0]:
            return self.tool.description
        return "\n\n".join(filter(None, (self.namespace.description, self.tool.description)))


def called_name(namespace: str | None, name: str) -> str:
    """Return the name by which a model calls a function; one that would be too long ends with a fingerprint."""
    full = name if namespace is None else f"{namespace}__{name}"
    if len(full) <= _MAX_NAME_CHARS:
        return full
    fingerprint = hashlib.sha256(full.encode()).hexdigest()[:_FINGERPRINT_CHARS]
    return f"{full[: _MAX_NAME_CHARS - _FINGERPRINT_CHARS - 1]}_{fingerprint}"


def functions_of(tools: Iterable[Any] | None) -> Iterator[ClientFunction]:
    """Yield the client's functions among tools, in their order, those of namespaces too."""
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, FunctionTool):
            yield ClientFunction(tool.name, tool, None, f"tools[{index}]")
        elif isinstance(tool, NamespaceTool):
            for position, one in enumerate(tool.tools):
                yield ClientFunction(called_name(tool.name, one.name), one, tool, f"tools[{index}].tools[{position}]")


def names_in(tools: Iterable[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the namespace and the name of functions by their name for the model; tools are as answers have them."""
    return {
        called_name(tool["name"], one["name"]): (tool["name"], one["name"])
        for tool in tools
        if tool["type"] == "namespace"
        for one in tool["tools"]
    }


def find_function(name: str, functions: Sequence[ClientFunction]) -> ClientFunction | None:
    """Return the function that a choice names: by its name for the model, or by its own if no other has that."""
    found = [function for function in functions if function.called == name]
    found = found or [function for function in functions if function.tool.name == name]
    return found[0] if len(found) == 1 else None


def check_functions(functions: Iterable[ClientFunction]) -> None:
    """Refuse a function in a namespace if the model would call another function by the same name."""
    seen: dict[str, ClientFunction] = {}
    for function in functions:
        other = seen.setdefault(function.called, function)
        if other is not function and (other.namespace or function.namespace):
            raise refusal(
                "invalid_value",
                f"Invalid value for '{{param}}': another function is called '{function.called}', too. Rename one.",
                f"{function.at}.name",
            )
