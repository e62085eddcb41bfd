"""The tools of a response and the choice among them. The service's own come from one module of this package for each.

The operation checks later whether a tool is switched on in this deployment.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from deployments.operations import TOOLS
from serve_app.schemas.base import Name, WireModel, invalid, refusal
from serve_app.schemas.custom_tools import InputGrammar
from serve_app.schemas.responses.built_in_tool import BuiltInItem, BuiltInTool
from serve_app.schemas.responses.functions import (
    ClientBuiltIn,
    ClientTool,
    CustomTool,
    FunctionTool,
    NamespaceTool,
    check_functions,
    find_function,
    functions_of,
)
from serve_app.schemas.responses.mcp import MAX_SERVERS, AllowedMcp, McpChoice, McpTool
from serve_app.schemas.responses.patch import ApplyPatchTool
from serve_app.schemas.responses.shell import LocalShellTool, ShellTool, container_of
from serve_app.schemas.responses.tool_search import ToolSearchTool
from serve_app.schemas.tools import MAX_TOOLS, check_parameters

Base = TypeVar("Base", bound=WireModel)


def _classes_of(base: type[Base]) -> Iterator[type[Base]]:
    """Yield the subclasses that the tools' modules define, in the order of the tools."""
    for tool in TOOLS:
        module = import_module(f"serve_app.schemas.responses.{tool}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__:
                yield value


def types_of(kind: type[WireModel]) -> tuple[str, ...]:
    """Return the values that the field `type` of a class may have."""
    return get_args(kind.model_fields["type"].annotation)


BUILT_IN_TOOLS: tuple[type[BuiltInTool], ...] = tuple(_classes_of(BuiltInTool))
BUILT_IN_ITEMS: Mapping[str, type[BuiltInItem]] = {
    name: kind for kind in _classes_of(BuiltInItem) for name in types_of(kind)
}
"""By type."""


UNSUPPORTED_TOOLS = frozenset({"computer", "computer_use_preview", "image_generation", "programmatic_tool_calling"})
"""The tools of OpenAI's API that this service lacks."""

_CLIENT_BUILT_INS = (ShellTool, LocalShellTool, ApplyPatchTool, ToolSearchTool)
CLIENT_BUILT_INS: Mapping[str, type[ClientBuiltIn]] = {tool.call_type: tool for tool in _CLIENT_BUILT_INS}
"""The built-in tools that the client runs, by the type of their calls."""


def is_clients_call(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a call that the client answers."""
    is_here = item.get("execution") == "server" or container_of(item) is not None
    return item["type"] in ("function_call", "custom_tool_call") or (item["type"] in CLIENT_BUILT_INS and not is_here)


_KINDS: tuple[type[WireModel], ...] = (FunctionTool, CustomTool, NamespaceTool, *_CLIENT_BUILT_INS)
CLIENT_TOOLS = tuple(types_of(kind)[0] for kind in _KINDS)
"""The types of tools that clients run."""


class AbsentTool(WireModel):
    """A tool that this service lacks. It is refused where it is known which ones it has."""

    model_config = ConfigDict(extra="ignore")

    type: Literal[tuple(sorted(UNSUPPORTED_TOOLS))]  # type: ignore[valid-type]


def _refuse_absent(choice: Any) -> Any:
    if isinstance(choice, dict) and isinstance(choice.get("type"), str) and choice["type"] in UNSUPPORTED_TOOLS:
        raise refusal(
            "unsupported_value",
            f"Unsupported value: this service has no tool '{choice['type']}'. Choose one of those in 'tools'.",
            ".type",
        )
    return choice


if TYPE_CHECKING:
    Tool = ClientTool | BuiltInTool | AbsentTool
    BuiltInType = str
else:
    _Tool = Union[
        (FunctionTool, CustomTool, NamespaceTool, *_CLIENT_BUILT_INS, *BUILT_IN_TOOLS, SkipJsonSchema[AbsentTool])
    ]
    Tool = Annotated[_Tool, Field(discriminator="type")]
    _CHOSEN_BY_TYPE = (*_CLIENT_BUILT_INS, *(tool for tool in BUILT_IN_TOOLS if tool.is_chosen_by_type))
    BuiltInType = Literal[tuple(name for tool in _CHOSEN_BY_TYPE for name in types_of(tool))]

Tools = Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)]


def _refuse_to_keep(tool: Tool) -> Tool:
    """Refuse a tool that cannot be in a conversation, which is stored."""
    if isinstance(tool, AbsentTool):
        raise refusal(
            "unsupported_value", f"Unsupported value: this service has no tool '{tool.type}'. Leave it out.", ".type"
        )
    if isinstance(tool, McpTool):
        raise refusal(
            "unsupported_value",
            "Unsupported value: '{param}' does not support 'mcp' here: the conversation is stored, and what gives "
            "access to a server must not be. Name the server in 'tools'.",
            ".type",
        )
    return tool


LaterTools = Annotated[
    list[Annotated[Tool, AfterValidator(_refuse_to_keep)]], Field(fail_fast=True, max_length=MAX_TOOLS)
]
"""Tools that a conversation brings."""


class NamedChoice(WireModel):
    """The model must call this function or custom tool.

    Args:
        type: whether it is a function or a custom tool.
        name: the tool's name.
    """

    type: Literal["function", "custom"]
    name: Name


class BuiltInChoice(WireModel):
    """The model must call this tool, which has no name of its own.

    Args:
        type: the tool's type.
    """

    type: BuiltInType


class AllowedBuiltIn(WireModel):
    """A tool without a name of its own that may be called; clients may send its whole definition again.

    Args:
        type: the tool's type.
    """

    model_config = ConfigDict(extra="ignore")

    type: BuiltInType


class AllowedFunction(WireModel):
    """A function or custom tool that may be called; clients may send its whole definition again.

    Args:
        type: whether it is a function or a custom tool.
        name: the tool's name.
    """

    model_config = ConfigDict(extra="ignore")

    type: Literal["function", "custom"]
    name: Name


AllowedTool = Annotated[
    Annotated[AllowedFunction | AllowedBuiltIn | AllowedMcp, Field(discriminator="type")],
    BeforeValidator(_refuse_absent),
]


class AllowedTools(WireModel):
    """The model may call some of the tools.

    Args:
        mode: `required` forces one of the calls, `auto` lets the model decide.
        tools: the tools that may be called.
    """

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]

    @property
    def functions(self) -> list[AllowedFunction]:
        """The functions and custom tools among them."""
        return [tool for tool in self.tools if isinstance(tool, AllowedFunction)]

    @property
    def built_in(self) -> set[str]:
        """The types of the tools among them that have no names of their own."""
        return {tool.type for tool in self.tools if isinstance(tool, AllowedBuiltIn)}

    @property
    def remote(self) -> list[AllowedMcp]:
        """The remote servers, or their tools, among them."""
        return [tool for tool in self.tools if isinstance(tool, AllowedMcp)]


ToolChoice = (
    Annotated[Literal["none", "auto", "required"], Tag("?string")]
    | Annotated[
        Annotated[NamedChoice | AllowedTools | BuiltInChoice | McpChoice, Field(discriminator="type")],
        BeforeValidator(_refuse_absent),
        Tag("?object"),
    ]
)


def check_tool_choice(choice: ToolChoice | None, tools: list[Tool] | None) -> None:
    """Refuse a choice that is not among the tools of the request."""
    if choice is None or choice in ("none", "auto"):
        return
    if not tools:
        raise invalid(
            "Invalid value for '{param}': '{param}' is only allowed when 'tools' are specified.", "tool_choice"
        )
    named: list[tuple[_Named, str]] = []
    if isinstance(choice, AllowedTools):
        named = [(tool, f"tool_choice.tools[{index}]") for index, tool in enumerate(choice.tools)]
    elif not isinstance(choice, str):
        named = [(choice, "tool_choice")]
    for one, at in named:
        _check_named(one, at, tools)


_Named = NamedChoice | BuiltInChoice | McpChoice | AllowedFunction | AllowedBuiltIn | AllowedMcp


def _check_named(one: _Named, at: str, tools: list[Tool]) -> None:
    match one:
        case NamedChoice() | AllowedFunction():
            field, wanted = "name", one.name
            there = {wanted} if find_function(wanted, list(functions_of(tools)), one.type) is not None else set()
        case McpChoice() | AllowedMcp():
            field, wanted = "server_label", one.server_label
            there = {tool.server_label for tool in tools if isinstance(tool, McpTool)}
        case _:
            field, wanted = "type", one.type
            there = {tool.type for tool in tools if isinstance(tool, BuiltInTool | ClientBuiltIn)}
    if wanted not in there:
        raise invalid(f"Invalid value for '{{param}}': tool '{wanted}' not found in 'tools'.", f"{at}.{field}")


MAX_FUNCTIONS = 4_096
"""Of one list of tools, those of namespaces included."""


def grammars_of(tools: list[Tool], at: str) -> Iterator[tuple[InputGrammar, str]]:
    """Yield the grammars of custom tools, each with its path."""
    for function in functions_of(tools, at):
        if isinstance(function.tool, CustomTool) and isinstance(function.tool.format, InputGrammar):
            yield function.tool.format, f"{function.at}.format"


def check_tools(tools: list[Tool] | None, at: str = "tools") -> None:
    """Refuse tools with the same names, too many of them, or schemas out of bounds; `at` is the list's path."""
    functions = list(functions_of(tools, at))
    if len(functions) > MAX_FUNCTIONS:
        raise refusal(
            "array_above_max_length",
            f"Invalid '{{param}}': at most {MAX_FUNCTIONS} functions, those of namespaces included, but got "
            f"{len(functions)} instead.",
            at,
        )
    check_functions(functions)
    for function in functions:
        if isinstance(function.tool, FunctionTool):
            strict = bool(function.tool.strict)
            check_parameters(function.tool.parameters, f"{function.at}.parameters", strict=strict, is_compiled=strict)
    _check_servers(tools, at)


def _check_servers(tools: list[Tool] | None, at: str) -> None:
    """Refuse two remote servers with one label, or too many of them."""
    labels: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, McpTool):
            if tool.server_label in labels:
                raise invalid(
                    "Invalid value for '{param}': another MCP server has this label. Give each one its own.",
                    f"{at}[{index}].server_label",
                )
            labels.add(tool.server_label)
            if len(labels) > MAX_SERVERS:
                raise refusal(
                    "array_above_max_length", f"Invalid 'tools': at most {MAX_SERVERS} MCP servers.", f"{at}[{index}]"
                )
