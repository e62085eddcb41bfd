"""The grammar of a call's arguments whose one text keeps to another grammar.

A custom tool is a function with the argument `input` for a model, and its input is free text for the client. So the
grammar of the input becomes one of the JSON that holds it: what JSON escapes is escaped in each text and each set of
characters. Every text has exactly one spelling, so that a grammar is followed as quickly as without JSON.
"""

import json

from deployments import characters
from deployments.characters import Ranges
from deployments.ebnf import class_of, rewritten, text_of
from deployments.models.contract.custom_tools import INPUT

_ESCAPED = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_SHORT = characters.of("".join(_ESCAPED))
_CONTROLS = ((0x00, 0x1F),)
_SPACE = "space ::= [ \\n\\r\\t]?"


def in_json(grammar: str) -> str:
    """Return the grammar of the texts of a grammar as JSON spells them, without quotes around them.

    Both are in EBNF as `deployments.ebnf` writes it.
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
