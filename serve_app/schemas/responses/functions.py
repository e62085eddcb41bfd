"""The functions and custom tools that the client runs, alone or in namespaces, and their names for the model."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from serve_app.schemas.base import Name, WireModel, invalid
from serve_app.schemas.custom_tools import InputGrammar, TextInput
from serve_app.schemas.tools import MAX_TOOLS, JsonSchema, called_name


class ClientTool(WireModel):
    """A tool that the client runs: to the model it is one function or several."""

    type: str

    @abstractmethod
    def functions(self, at: str) -> Iterator["ClientFunction"]:
        """Yield the functions; `at` is the tool's path in the request."""


class ClientBuiltIn(ClientTool):
    """A built-in tool that the client runs: its calls are items of their own type.

    The model calls it as the function `called`.
    """

    called: ClassVar[str]
    call_type: ClassVar[str]
    id_prefix: ClassVar[str]

    @classmethod
    @abstractmethod
    def read_call(cls, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the fields that a call's item has of its own; None if the arguments do not fit."""

    @classmethod
    @abstractmethod
    def show_call(cls, item: Mapping[str, Any]) -> Any:
        """Return the arguments of a call, as the model wrote them."""

    @classmethod
    def call_events(cls, item: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Return the kinds and the fields of the events between the first and the last of a call's item."""
        return []

    def to_wire(self) -> dict[str, Any]:
        """Return the tool as a response echoes it."""
        return self.model_dump(exclude_none=True)


class FunctionTool(ClientTool):
    """A function that the client runs when the model asks for it; `parameters` is a JSON schema.

    Args:
        name: the function's name.
        description: what the function does, for the model.
        parameters: a JSON schema of the arguments, which are an object.
        strict: makes the arguments always fit the schema.
        output_schema: accepted for compatibility; has no effect.
        allowed_callers: accepted for compatibility; has no effect.
        defer_loading: hides the function from the model until a search has found it. Needs the tool `tool_search`.
    """

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: JsonSchema | None = None
    strict: bool | None = None
    output_schema: JsonSchema | None = None
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    defer_loading: bool | None = None

    def functions(self, at: str) -> Iterator["ClientFunction"]:
        """Yield the function itself."""
        yield ClientFunction(self.name, self, None, at, is_deferred=bool(self.defer_loading))


class GrammarFormat(InputGrammar):
    """A text that follows a grammar."""

    type: Literal["grammar"]


class CustomTool(ClientTool):
    """A tool that the client runs when the model asks for it, and whose input is a text.

    Args:
        name: the tool's name.
        description: what the tool does, for the model.
        format: any text, unless it names a grammar that the input follows.
        allowed_callers: accepted for compatibility; has no effect.
        defer_loading: hides the tool from the model until a search has found it. Needs the tool `tool_search`.
    """

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: Annotated[TextInput | GrammarFormat, Field(discriminator="type")] | None = None
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    defer_loading: bool | None = None

    def functions(self, at: str) -> Iterator["ClientFunction"]:
        """Yield the tool itself."""
        yield ClientFunction(self.name, self, None, at, is_deferred=bool(self.defer_loading))


class NamespaceTool(ClientTool):
    """A group of tools, such as those of an MCP server that the client runs. A call names both.

    Args:
        name: the name of the group.
        description: what the group is for, for the model.
        tools: the functions and custom tools of the group.
        defer_loading: hides all of them from the model until a search has found them.
    """

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[
        list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]],
        Field(fail_fast=True, max_length=MAX_TOOLS),
    ]
    defer_loading: bool | None = None

    def functions(self, at: str) -> Iterator["ClientFunction"]:
        """Yield the functions of the group."""
        for index, one in enumerate(self.tools):
            is_deferred = bool(self.defer_loading or one.defer_loading)
            yield ClientFunction(
                called_name(self.name, one.name), one, self, f"{at}.tools[{index}]", is_deferred=is_deferred
            )


@dataclass(frozen=True, slots=True)
class ClientFunction:
    """A function or custom tool of the client: `called` is its name for the model, `at` its path in the request.

    `built_in` is the built-in tool that it stands for, if it does.
    """

    called: str
    tool: FunctionTool | CustomTool
    namespace: NamespaceTool | None
    at: str
    is_deferred: bool = False
    built_in: type[ClientBuiltIn] | None = None

    @property
    def description(self) -> str | None:
        """What the model reads of it: the first of a namespace also says what the namespace is for."""
        if self.namespace is None or not self.namespace.description or self.tool is not self.namespace.tools[0]:
            return self.tool.description
        return "\n\n".join(filter(None, (self.namespace.description, self.tool.description)))


def functions_of(tools: Iterable[Any] | None, at: str = "tools") -> Iterator[ClientFunction]:
    """Yield the client's functions and custom tools among tools, in their order, those of namespaces too.

    `at` is the list's path.
    """
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, ClientTool):
            yield from tool.functions(f"{at}[{index}]")


def find_function(
    name: str, functions: Sequence[ClientFunction], kind: Literal["function", "custom"] = "function"
) -> ClientFunction | None:
    """Return the tool that a choice names: by its name for the model, or by its own if no other has that."""
    functions = [function for function in functions if function.tool.type == kind]
    found = [function for function in functions if function.called == name]
    found = found or [function for function in functions if function.tool.name == name]
    return found[0] if len(found) == 1 else None


def check_functions(functions: Iterable[ClientFunction]) -> None:
    """Refuse a tool if the model would call another one by the same name."""
    seen: dict[str, ClientFunction] = {}
    for function in functions:
        other = seen.setdefault(function.called, function)
        if other is not function and not (_is_plain(other) and _is_plain(function)):
            raise invalid(
                f"Invalid value for '{{param}}': another tool is called '{function.called}', too. Rename one.",
                f"{function.at}.{'type' if function.built_in else 'name'}",
            )


def _is_plain(function: ClientFunction) -> bool:
    """Return whether it is a function by its own name; of two with the same name the model reads both."""
    return not (function.namespace or function.built_in or isinstance(function.tool, CustomTool))
