"""The schemas and other forms of a request that an engine compiles into grammars; `budget` tries them first."""

import copy
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from deployments import characters
from deployments.characters import Ranges
from deployments.ebnf import class_of, rewritten, text_of
from deployments.models.contract.custom_tools import FIELD, INPUT
from deployments.replica.structural_tags import GRAMMAR, has_either

_ESCAPED = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_SHORT = characters.of("".join(_ESCAPED))
_CONTROLS = ((0x00, 0x1F),)
_SPACE = "space ::= [ \\n\\r\\t]?"
DEFAULT_PARAM = "response_format.json_schema.schema"

Form = Literal["json", "regex", "grammar", "structural_tag", "calls"]

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
_ANNOTATIONS = frozenset({"type", "title", "description", "$schema", "$id", "$comment"})


class Requested(NamedTuple):
    """A text that becomes a grammar, and the field that holds it.

    The text of calls holds a schema for each tool; `tools` has the positions of these tools. A "grammar" with a
    position is that of the tool's input, as JSON spells it: what comes before it in a call is the same for all.
    """

    param: str
    text: str
    form: Form = "json"
    tools: tuple[int, ...] = ()

    def param_of(self, position: int) -> str:
        """Return the field that holds the form's schema at a position."""
        if not self.tools:
            return self.param
        inner = ".function" if self.param == "tools" else ""
        return f"{self.param}[{self.tools[position]}]{inner}.parameters"


def _schema_text(schema: str | dict[str, Any]) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def _choice_as_grammar(choices: list[str]) -> str:
    alternatives = (re.sub(r'["\\\x00-\x1f\x7f]', lambda one: f"\\u{ord(one[0]):04x}", choice) for choice in choices)
    return "root ::= " + " | ".join(f'"{choice}"' for choice in alternatives)


_TEXTS: Mapping[str, tuple[Form, Callable[[Any], str]]] = {
    "json": ("json", _schema_text),
    "regex": ("regex", str),
    "choice": ("grammar", _choice_as_grammar),
    "grammar": ("grammar", str),
    "structural_tag": ("structural_tag", str),
}


def forms_to_compile(body: dict[str, Any], functions: str = "tools") -> list[Requested]:
    """Return each form in the body of a chat or a completion that an engine would compile.

    These are the response format, structured outputs, the grammars of custom tools, and the schemas of functions: if a
    call is forced, if a function is strict, and beside a form of the answer. `functions` names the field in which the
    client sent the tools.
    """
    found = []
    for name, value in (body.get("structured_outputs") or {}).items():
        if value is not None and name in _TEXTS:
            form, text_of = _TEXTS[name]
            found.append(Requested(f"structured_outputs.{name}", text_of(value), form))
    response_format = body.get("response_format") or {}
    if response_format.get("type") == "json_schema":
        found.append(Requested(DEFAULT_PARAM, json.dumps(response_format["json_schema"].get("schema", {}))))
    elif response_format.get("type") == "structural_tag":
        found.append(Requested("response_format", json.dumps(response_format), "structural_tag"))
    if calls := _calls(body):
        text = json.dumps([{"schema": schema, "must_fit": must_fit} for _, schema, must_fit in calls])
        found.append(Requested(functions, text, "calls", tuple(index for index, *_ in calls)))
    custom = body.get(FIELD) or {}
    for index, tool in _callable(body):
        if (grammar := custom.get(tool["function"]["name"])) is not None:
            param = f"tools[{index}].custom.format.grammar.definition"
            found.append(Requested(param, in_json(grammar), "grammar", (index,)))
    return found


def _callable(body: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return the tools that the model may call, with their positions."""
    choice = body.get("tool_choice")
    tools = list(enumerate(body.get("tools") or []))
    if isinstance(choice, dict):
        wanted = choice.get("function", {}).get("name")
        return [(index, tool) for index, tool in tools if tool["function"]["name"] == wanted]
    return [] if choice == "none" else tools


def _calls(body: dict[str, Any]) -> list[tuple[int, dict[str, Any], bool]]:
    """Return the tools whose arguments a schema guides: position, schema, and whether the schema must be kept."""
    custom = body.get(FIELD) or {}
    tools = [(index, tool) for index, tool in _callable(body) if tool["function"]["name"] not in custom]
    is_forced = body.get("tool_choice") not in (None, "auto")
    # If one function is strict, or the answer has a form, the engine guides the calls of all.
    is_strict = any(tool["function"].get("strict") for _, tool in tools)
    if not (is_forced or is_strict or has_either(body)):
        return []
    return [
        (index, _arguments(tool["function"].get("parameters")), is_forced or bool(tool["function"].get("strict")))
        for index, tool in tools
    ]


def _arguments(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Return the schema of a function's arguments; without keywords about arguments, the function has none."""
    return parameters if parameters and not set(parameters) <= _ANNOTATIONS else _NO_ARGUMENTS


def held_to(body: dict[str, Any], tried: list[tuple[Requested, str]]) -> dict[str, Any]:
    """Return a body with its forms replaced by the rewritten texts."""
    body = {**body, **{name: copy.deepcopy(body[name]) for name in ("response_format", "tools") if body.get(name)}}
    for requested, text in tried:
        if requested.param == DEFAULT_PARAM:
            body["response_format"]["json_schema"]["schema"] = json.loads(text)
        elif requested.param == "response_format":
            body["response_format"] = json.loads(text)
        elif requested.form == "calls":
            for index, schema in zip(requested.tools, json.loads(text), strict=True):
                # With an explicit false, vLLM would ignore the schema.
                body["tools"][index]["function"] |= {"parameters": schema, "strict": True}
        elif requested.form == "grammar" and requested.tools:
            body["tools"][requested.tools[0]]["function"]["parameters"] = {GRAMMAR: arguments_with(text)}
        elif requested.form in ("json", "regex", "structural_tag"):
            name = requested.param.removeprefix("structured_outputs.")
            body["structured_outputs"] = {**body["structured_outputs"], name: text}
    return body


def in_json(grammar: str) -> str:
    """Return the grammar of the texts of a grammar as JSON spells them, without quotes around them.

    A custom tool is a function with the argument `input` for a model, and its input is free text for the client. So
    what JSON escapes is escaped in each text and each set of characters. Every text has exactly one spelling, so that
    a grammar is followed as quickly as without JSON. Both are in EBNF as `deployments.ebnf` writes it.
    """
    return rewritten(grammar, _text, _class)


def arguments_with(spelled: str) -> str:
    """Return the grammar of arguments whose `input` is a text that `in_json` has spelled."""
    quote = text_of('"')
    parts = [text_of("{"), text_of(f'"{INPUT}"'), text_of(":"), f"{quote} input {quote}", text_of("}")]
    inner = spelled.replace("root ::=", "input ::=", 1)
    return "\n".join([f"root ::= {' space '.join(parts)}", _SPACE, inner])


def _text(text: str) -> str:
    return text_of(json.dumps(text, ensure_ascii=False)[1:-1])


def _class(ranges: Ranges) -> str:
    choices = []
    if plain := characters.intersection(ranges, characters.SAFE):
        choices.append(class_of(plain))
    if short := characters.intersection(ranges, _SHORT):
        letters = "".join(_ESCAPED[chr(code)] for low, high in short for code in range(low, high + 1))
        choices.append(f"{text_of(chr(92))} {class_of(characters.of(letters))}")
    others = characters.intersection(characters.intersection(ranges, _CONTROLS), characters.complement(_SHORT))
    for half in (0, 1):
        digits = [f"{code & 15:x}" for low, high in others for code in range(low, high + 1) if code >> 4 == half]
        if digits:
            prefix = text_of(f"{chr(92)}u00{half}")
            choices.append(f"{prefix} {class_of(characters.of(''.join(digits)))}")
    return choices[0] if choices and choices[0].startswith("[") and len(choices) == 1 else f"({' | '.join(choices)})"
