"""The tools of a response, and how a caller steers their choice."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, Tag

from serve_app.schemas.base import Name, WireModel, refusal
from serve_app.schemas.tools import MAX_TOOLS, JsonSchema

BUILT_IN_TOOLS = frozenset(
    {
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "custom",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "namespace",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    }
)
"""The tools that OpenAI's interface names and this version does not have."""


class FunctionTool(WireModel):
    """A function that the caller runs when the model asks for it; `parameters` is a JSON schema."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: JsonSchema | None = None
    strict: bool | None = None
    output_schema: JsonSchema | None = None
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    defer_loading: bool | None = None


def _refuse_built_in(tool: Any) -> Any:
    """Return what is not a tool that the service would run itself."""
    if isinstance(tool, dict) and isinstance(tool.get("type"), str) and tool["type"] in BUILT_IN_TOOLS:
        raise refusal(
            "unsupported_value",
            f"Unsupported value: the tool '{tool['type']}' is not available in this version of the service. Supported "
            "values are: 'function'.",
            ".type",
        )
    return tool


Tool = Annotated[FunctionTool, BeforeValidator(_refuse_built_in)]
Tools = Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)]


class NamedChoice(WireModel):
    """The model must call this function."""

    type: Literal["function"]
    name: Name


class AllowedTool(WireModel):
    """A tool that may be called; clients may send its whole definition again."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["function"]
    name: Name


class AllowedTools(WireModel):
    """The model may call some of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]


ToolChoice = (
    Annotated[Literal["none", "auto", "required"], Tag("?string")]
    | Annotated[
        Annotated[NamedChoice | AllowedTools, Field(discriminator="type")],
        BeforeValidator(_refuse_built_in),
        Tag("?object"),
    ]
)


def check_tool_choice(choice: ToolChoice | None, tools: list[FunctionTool] | None) -> None:
    """Return if a choice can be made among the tools that there are.

    Raises:
        PydanticCustomError: there are no tools to choose from, or one that is named is not among them.
    """
    if choice is None or choice in ("none", "auto"):
        return
    names = {tool.name for tool in tools or ()}
    if not names:
        raise refusal(
            "invalid_value",
            "Invalid value for '{param}': '{param}' is only allowed when 'tools' are specified.",
            "tool_choice",
        )
    named = [(choice.name, "tool_choice.name")] if isinstance(choice, NamedChoice) else []
    if isinstance(choice, AllowedTools):
        named = [(tool.name, f"tool_choice.tools[{index}].name") for index, tool in enumerate(choice.tools)]
    for name, at in named:
        if name not in names:
            raise refusal("invalid_value", f"Invalid value for '{{param}}': tool '{name}' not found in 'tools'.", at)
