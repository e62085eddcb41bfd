"""Says what an engine would compile into a grammar for a request; `budget` tries it out first."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

DEFAULT_PARAM = "response_format.json_schema.schema"

Form = Literal["json", "regex", "grammar", "structural_tag"]


class Requested(NamedTuple):
    """A text that becomes a grammar, and the field that holds it."""

    param: str
    text: str
    form: Form = "json"


def _schema_text(schema: str | dict[str, Any]) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def _choice_as_grammar(choices: list[str]) -> str:
    """Return the grammar that vLLM makes of a choice."""
    alternatives = (re.sub(r'(["\\])', r"\\\1", choice) for choice in choices)
    return "root ::= " + " | ".join(f'"{choice}"' for choice in alternatives)


_TEXTS: Mapping[str, tuple[Form, Callable[[Any], str]]] = {
    "json": ("json", _schema_text),
    "regex": ("regex", str),
    "choice": ("grammar", _choice_as_grammar),
    "grammar": ("grammar", str),
    "structural_tag": ("structural_tag", str),
}


def forms_to_compile(body: dict[str, Any]) -> list[Requested]:
    """Return each schema and other form in the body of a chat or a completion that an engine would compile.

    Those are the response format's, the form of structured outputs, and the tools': where the choice forces a call, and
    otherwise where a tool is strict, since a call that the model then makes by itself is held to its schema.
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
    choice = body.get("tool_choice")
    tools = body.get("tools") or []
    if isinstance(choice, dict):
        wanted = choice.get("function", {}).get("name")
        tools = [tool for tool in tools if tool["function"]["name"] == wanted]
    elif choice == "none":
        tools = []
    elif choice != "required":
        tools = [tool for tool in tools if tool["function"].get("strict")]
    if tools:
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"enum": [tool["function"]["name"]]},
                    "parameters": tool["function"].get("parameters") or {"type": "object", "properties": {}},
                },
                "required": ["name", "parameters"],
            }
            for tool in tools
        ]
        definitions: dict[str, Any] = {}
        for tool in tools:
            definitions.update((tool["function"].get("parameters") or {}).get("$defs") or {})
        wrapped = {"type": "array", "minItems": 1, "items": {"type": "object", "anyOf": calls}}
        found.append(Requested("tools", json.dumps({**wrapped, "$defs": definitions} if definitions else wrapped)))
    return found
