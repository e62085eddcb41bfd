"""The tools of a response and the choice among them. The service's own come from one module of this package for each.

The operation checks later whether a tool is switched on in this deployment.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args

from pydantic import BeforeValidator, ConfigDict, Field, Tag

from deployments.operations import TOOLS
from serve_app.schemas.base import Name, WireModel, refusal
from serve_app.schemas.responses.built_in_tool import BuiltInItem, BuiltInTool
from serve_app.schemas.responses.functions import FunctionTool, NamespaceTool, find_function, functions_of
from serve_app.schemas.responses.mcp import MAX_SERVERS, AllowedMcp, McpChoice, McpTool
from serve_app.schemas.tools import MAX_TOOLS

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


UNSUPPORTED_TOOLS = frozenset(
    {
        "apply_patch",
        "computer",
        "computer_use_preview",
        "custom",
        "image_generation",
        "local_shell",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
    }
)
"""The tools of OpenAI's API that this service lacks."""

_SUPPORTED = [f"'{name}'" for name in ("function", "namespace", *(types_of(tool)[0] for tool in BUILT_IN_TOOLS))]
SUPPORTED_TOOLS = f"{', '.join(_SUPPORTED[:-1])} and {_SUPPORTED[-1]}"


def _refuse_built_in(tool: Any) -> Any:
    if isinstance(tool, dict) and isinstance(tool.get("type"), str) and tool["type"] in UNSUPPORTED_TOOLS:
        raise refusal(
            "unsupported_value",
            f"Unsupported value: the tool '{tool['type']}' is not available in this version of the service. Supported "
            f"values are: {SUPPORTED_TOOLS}.",
            ".type",
        )
    return tool


if TYPE_CHECKING:
    Tool = FunctionTool | NamespaceTool | BuiltInTool
    BuiltInType = str
else:
    _Tool = Union[(FunctionTool, NamespaceTool, *BUILT_IN_TOOLS)]
    Tool = Annotated[Annotated[_Tool, Field(discriminator="type")], BeforeValidator(_refuse_built_in)]
    BuiltInType = Literal[tuple(name for tool in BUILT_IN_TOOLS if tool.is_chosen_by_type for name in types_of(tool))]

Tools = Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)]


class NamedChoice(WireModel):
    """The model must call this function.

    Args:
        name: the function's name.
    """

    type: Literal["function"]
    name: Name


class BuiltInChoice(WireModel):
    """The model must call this tool of the service.

    Args:
        type: the tool's type.
    """

    type: BuiltInType


class AllowedBuiltIn(WireModel):
    """A tool of the service that may be called; clients may send its whole definition again.

    Args:
        type: the tool's type.
    """

    model_config = ConfigDict(extra="ignore")

    type: BuiltInType


class AllowedFunction(WireModel):
    """A function that may be called; clients may send its whole definition again.

    Args:
        name: the function's name.
    """

    model_config = ConfigDict(extra="ignore")

    type: Literal["function"]
    name: Name


AllowedTool = Annotated[
    Annotated[AllowedFunction | AllowedBuiltIn | AllowedMcp, Field(discriminator="type")],
    BeforeValidator(_refuse_built_in),
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
    def functions(self) -> set[str]:
        """The names of the functions among them."""
        return {tool.name for tool in self.tools if isinstance(tool, AllowedFunction)}

    @property
    def built_in(self) -> set[str]:
        """The types of the service's tools among them."""
        return {tool.type for tool in self.tools if isinstance(tool, AllowedBuiltIn)}

    @property
    def remote(self) -> list[AllowedMcp]:
        """The remote servers, or their tools, among them."""
        return [tool for tool in self.tools if isinstance(tool, AllowedMcp)]


ToolChoice = (
    Annotated[Literal["none", "auto", "required"], Tag("?string")]
    | Annotated[
        Annotated[NamedChoice | AllowedTools | BuiltInChoice | McpChoice, Field(discriminator="type")],
        BeforeValidator(_refuse_built_in),
        Tag("?object"),
    ]
)


def check_tool_choice(choice: ToolChoice | None, tools: list[Tool] | None) -> None:
    """Refuse a choice that is not among the tools of the request."""
    if choice is None or choice in ("none", "auto"):
        return
    if not tools:
        raise refusal(
            "invalid_value",
            "Invalid value for '{param}': '{param}' is only allowed when 'tools' are specified.",
            "tool_choice",
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
            there = {wanted} if find_function(wanted, list(functions_of(tools))) is not None else set()
        case McpChoice() | AllowedMcp():
            field, wanted = "server_label", one.server_label
            there = {tool.server_label for tool in tools if isinstance(tool, McpTool)}
        case _:
            field, wanted = "type", one.type
            there = {tool.type for tool in tools if isinstance(tool, BuiltInTool)}
    if wanted not in there:
        raise refusal(
            "invalid_value", f"Invalid value for '{{param}}': tool '{wanted}' not found in 'tools'.", f"{at}.{field}"
        )


def check_tools(tools: list[Tool] | None) -> None:
    """Refuse two remote servers with one label, or too many of them."""
    labels: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, McpTool):
            if tool.server_label in labels:
                raise refusal(
                    "invalid_value",
                    "Invalid value for '{param}': another MCP server has this label. Give each one its own.",
                    f"tools[{index}].server_label",
                )
            labels.add(tool.server_label)
            if len(labels) > MAX_SERVERS:
                raise refusal(
                    "array_above_max_length", f"Invalid 'tools': at most {MAX_SERVERS} MCP servers.", f"tools[{index}]"
                )
