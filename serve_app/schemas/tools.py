"""The tools of a chat, the choice among them, and the functions that they replaced."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import orjson
from pydantic import ConfigDict, Field, Tag

from serve_app.schemas.base import Name, WireModel, estimate_tokens, invalid
from serve_app.schemas.custom_tools import InputGrammar, TextInput, check_grammars, function_of
from serve_app.schemas.json_schema import check_json_schema

MAX_TOOLS = 128
_MAX_NAME_CHARS = 64
_FINGERPRINT_CHARS = 8

JsonSchema = dict[str, Any]


class FunctionDefinition(WireModel):
    """A function that the client runs when the model asks for it; `parameters` is a JSON schema.

    Args:
        name: the function's name.
        description: what the function does, for the model.
        parameters: a JSON schema of the arguments, which are an object.
        strict: makes the arguments always fit the schema.
    """

    name: Name
    description: str | None = None
    parameters: JsonSchema | None = None
    strict: bool | None = None


class ChatFunctionTool(WireModel):
    """A tool that is a function."""

    type: Literal["function"]
    function: FunctionDefinition


class GrammarInput(WireModel):
    """A text that follows a grammar."""

    type: Literal["grammar"]
    grammar: InputGrammar


class CustomDefinition(WireModel):
    """A tool that the client runs when the model asks for it, and whose input is a text.

    Args:
        name: the tool's name.
        description: what the tool does, for the model.
        format: any text, unless it names a grammar that the input follows.
    """

    name: Name
    description: str | None = None
    format: Annotated[TextInput | GrammarInput, Field(discriminator="type")] | None = None

    @property
    def grammar(self) -> InputGrammar | None:
        """The grammar of the input, None for any text."""
        return self.format.grammar if isinstance(self.format, GrammarInput) else None


class ChatCustomTool(WireModel):
    """A tool whose input is a text."""

    type: Literal["custom"]
    custom: CustomDefinition

    def to_function(self) -> dict[str, Any]:
        """Return the function that the model calls for it."""
        return function_of(self.custom.name, self.custom.description, self.custom.grammar)


class FunctionName(WireModel):
    """A function, by name.

    Args:
        name: the function's name.
    """

    name: Name


class NamedToolChoice(WireModel):
    """The model must call this function."""

    type: Literal["function"]
    function: FunctionName


class CustomToolChoice(WireModel):
    """The model must call this custom tool."""

    type: Literal["custom"]
    custom: FunctionName


class ChatAllowedFunction(FunctionName):
    """A function, by name; clients may send its whole definition again."""

    model_config = ConfigDict(extra="ignore")


class AllowedFunction(WireModel):
    """A function that may be called."""

    type: Literal["function"]
    function: ChatAllowedFunction


class AllowedCustomTool(WireModel):
    """A custom tool that may be called."""

    type: Literal["custom"]
    custom: ChatAllowedFunction


AllowedTool = Annotated[AllowedFunction | AllowedCustomTool, Field(discriminator="type")]


class ChatAllowedTools(WireModel):
    """The tools that may be called.

    Args:
        mode: `required` forces one of the calls, `auto` lets the model decide.
        tools: the tools that may be called.
    """

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]


class AllowedToolsChoice(WireModel):
    """The model may call some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: ChatAllowedTools


class LegacyFunction(WireModel):
    """A function, in the form that tools replaced.

    Args:
        name: the function's name.
        description: what the function does, for the model.
        parameters: a JSON schema of the arguments, which are an object.
    """

    name: Name
    description: str | None = None
    parameters: JsonSchema | None = None


Tool = Annotated[ChatFunctionTool | ChatCustomTool, Field(discriminator="type")]
Tools = Annotated[list[Tool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]
ToolChoice = (
    Annotated[Literal["none", "auto", "required"], Tag("?string")]
    | Annotated[
        Annotated[NamedToolChoice | AllowedToolsChoice | CustomToolChoice, Field(discriminator="type")], Tag("?object")
    ]
)
LegacyFunctions = Annotated[list[LegacyFunction], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]
LegacyFunctionCall = Annotated[Literal["none", "auto"], Tag("?string")] | Annotated[FunctionName, Tag("?object")]


def called_name(namespace: str | None, name: str) -> str:
    """Return the name by which a model calls a function; one that would be too long ends with a fingerprint.

    A function that is its own namespace has no other: so calls of deferred functions without one are written.
    """
    full = name if namespace in (None, name) else f"{namespace}__{name}"
    if len(full) <= _MAX_NAME_CHARS:
        return full
    fingerprint = hashlib.sha256(full.encode()).hexdigest()[:_FINGERPRINT_CHARS]
    return f"{full[: _MAX_NAME_CHARS - _FINGERPRINT_CHARS - 1]}_{fingerprint}"


def check_parameters(parameters: JsonSchema | None, at: str, *, strict: bool = False, is_compiled: bool = True) -> None:
    """Check the schema of a function's arguments; `at` is its path in the body, and `strict` asks for OpenAI's subset.

    See `check_json_schema` for `is_compiled`.

    Raises:
        PydanticCustomError: it is out of bounds, or its arguments are not an object.
    """
    if parameters is None:
        return
    types = parameters.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        raise invalid(
            "Invalid schema for '{param}': 'type' must be 'object', as the arguments of a function are one.", at
        )
    check_json_schema(parameters, at, strict=strict, is_compiled=is_compiled)


def estimate_tools(tools: Iterable[ChatFunctionTool | ChatCustomTool] | None) -> int:
    """Return about how many tokens tools take in a prompt."""
    shown = [
        tool.to_function()["function"] if isinstance(tool, ChatCustomTool) else dict(tool.function)
        for tool in tools or ()
    ]
    texts = (text for function in shown for text in (function["name"], function["description"] or ""))
    return estimate_tokens(texts) + sum(len(orjson.dumps(function["parameters"])) // 4 for function in shown)


def name_of(tool: ChatFunctionTool | ChatCustomTool) -> str:
    """Return the name by which the model calls a tool."""
    return tool.custom.name if isinstance(tool, ChatCustomTool) else tool.function.name


def check_custom_tools(tools: Iterable[ChatFunctionTool | ChatCustomTool] | None) -> None:
    """Refuse custom tools that have the name of another tool, as a call could not tell them apart, or bad grammars."""
    tools = list(tools or ())
    num_of = Counter(map(name_of, tools))
    for index, tool in enumerate(tools):
        if isinstance(tool, ChatCustomTool) and num_of[tool.custom.name] > 1:
            raise invalid(
                "Invalid value for '{param}': another tool has this name, too. Rename one.",
                f"tools[{index}].custom.name",
            )
    check_grammars(
        (tool.custom.grammar, f"tools[{index}].custom.format.grammar")
        for index, tool in enumerate(tools)
        if isinstance(tool, ChatCustomTool) and tool.custom.grammar is not None
    )


def check_tool_choice(choice: ToolChoice | None, tools: list[ChatFunctionTool | ChatCustomTool] | None) -> None:
    """Refuse a choice that is not among the tools of the request."""
    if choice is None or choice in ("none", "auto"):
        return
    if not tools:
        raise invalid(
            "Invalid value for '{param}': '{param}' is only allowed when 'tools' are specified.", "tool_choice"
        )
    names: set[tuple[str, str]] = {(tool.type, name_of(tool)) for tool in tools}
    if isinstance(choice, AllowedToolsChoice):
        for index, allowed in enumerate(choice.allowed_tools.tools):
            at = f"tool_choice.allowed_tools.tools[{index}].{allowed.type}.name"
            _check_known(allowed.type, _named(allowed), names, at)
    elif not isinstance(choice, str):
        _check_known(choice.type, _named(choice), names, "tool_choice")


def _named(choice: NamedToolChoice | CustomToolChoice | AllowedFunction | AllowedCustomTool) -> str:
    return choice.custom.name if isinstance(choice, CustomToolChoice | AllowedCustomTool) else choice.function.name


def _check_known(kind: str, name: str, names: set[tuple[str, str]], at: str) -> None:
    if (kind, name) not in names:
        raise invalid(f"Invalid value for '{{param}}': tool '{name}' not found in 'tools'.", at)
