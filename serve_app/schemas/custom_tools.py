"""Custom tools: their input is a text, any or one that follows a grammar, where a function has JSON arguments.

A model sees a custom tool as a function with the one argument `input`, and calls it in its own way of writing calls.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from deployments.models.contract.custom_tools import INPUT
from serve_app.schemas.base import WireModel, invalid, refusal
from serve_app.schemas.json_schema import check_pattern, object_schema
from serve_app.schemas.lark import lark_to_ebnf, regex_to_ebnf
from serve_app.schemas.lark_regex import LarkRefused
from serve_app.schemas.structured_outputs import MAX_GRAMMAR_CHARS

MAX_GRAMMARS_CHARS = 2 * MAX_GRAMMAR_CHARS
"""Of all custom tools of a request: reading the longest grammar takes a tenth of a second."""
_PARAMETERS = object_schema({INPUT: {"type": "string"}})
_ANY_TEXT = f"The argument '{INPUT}' is plain text."
_FOLLOWS = {
    "lark": f"The argument '{INPUT}' is a text that follows this Lark grammar:",
    "regex": f"The argument '{INPUT}' is a text that this regular expression matches as a whole:",
}


class InputGrammar(WireModel):
    """A grammar that the input of a custom tool follows.

    Args:
        syntax: `lark`, or `regex` for a regular expression that matches the whole input.
        definition: the grammar, or the regular expression.
    """

    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Field(min_length=1, max_length=MAX_GRAMMAR_CHARS)]

    def check(self, at: str) -> None:
        """Refuse a grammar that cannot be read; `at` is its path."""
        if self.syntax == "regex":
            check_pattern(self.definition, f"{at}.definition")
        try:
            self.to_ebnf()
        except LarkRefused as refused:
            what = "a grammar of Lark" if self.syntax == "lark" else "a regular expression"
            raise invalid(
                f"Invalid value for '{{param}}': it is read as {what}, and {refused}.", f"{at}.definition"
            ) from None

    def to_ebnf(self) -> str:
        """Return the grammar in EBNF."""
        return _read(self.syntax, self.definition)


@lru_cache(maxsize=64)  # An agent sends the same grammar at each turn.
def _read(syntax: str, definition: str) -> str:
    return lark_to_ebnf(definition) if syntax == "lark" else regex_to_ebnf(definition)


def check_grammars(grammars: Iterable[tuple[InputGrammar, str]]) -> None:
    """Refuse the grammars of a request, each with its path, if one cannot be read or all are too long together."""
    given = list(grammars)
    num_chars = 0
    for grammar, at in given:
        num_chars += len(grammar.definition)
        if num_chars > MAX_GRAMMARS_CHARS:
            raise refusal(
                "string_above_max_length",
                f"Invalid '{{param}}': the grammars of a request may have {MAX_GRAMMARS_CHARS:,} characters together. "
                "Send shorter or fewer ones.",
                f"{at}.definition",
            )
    for grammar, at in given:
        grammar.check(at)


class TextInput(WireModel):
    """Any text."""

    type: Literal["text"]


def function_of(name: str, description: str | None, grammar: InputGrammar | None) -> dict[str, Any]:
    """Return the function that a model calls for a custom tool, as a tool of a chat; no grammar allows any text."""
    said = _ANY_TEXT if grammar is None else f"{_FOLLOWS[grammar.syntax]}\n\n{grammar.definition}"
    function = {"name": name, "description": f"{description}\n\n{said}" if description else said}
    return {"type": "function", "function": {**function, "parameters": _PARAMETERS, "strict": True}}


def arguments_of(text: str) -> str:
    """Return the arguments of a call of that function, as JSON."""
    return orjson.dumps({INPUT: text}).decode()
