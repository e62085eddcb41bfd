"""Translates Lark grammars and regular expressions into the EBNF that the engine's compiler reads.

Lark's notation: https://lark-parser.readthedocs.io/en/stable/grammar.html. Supports rules, terminals, texts, ranges,
groups, optional parts, repetitions, Lark's common terminals, and regular expressions without assertions. Aliases and
priorities are dropped: they affect how a text is parsed, not whether it matches. Linear in time; the result is about
ten times as long at most.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from deployments import characters
from deployments.ebnf import class_of, text_of
from serve_app.schemas.lark_regex import LarkRefused, read_regex
from serve_app.schemas.lark_terminals import COMMON
from serve_app.schemas.rules_that_end import endless

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f]+|(?://|\#)[^\n]*)
    | (?P<line>\n\s*)
    | (?P<text>"(?:\\.|[^"\\\n])*")(?P<flag>i?)
    | (?P<regex>/(?:\\.|\[(?:\\.|[^\]\\\n])*+\]|[^/\\\n\[])++/)(?P<flags>[imslux]*)
    | (?P<alias>->\s*\w+)
    | (?P<times>~\s*(?P<least>\d+)(?:\s*\.\.\s*(?P<most>\d+))?)
    | (?P<range>\.\.)
    | (?P<name>[!?]*[A-Za-z_]\w*)
    | (?P<priority>\.\d+)
    | (?P<mark>[:|()\[\]?*+])
    | (?P<statement>%[^\n]*)
    | (?P<other>.)""",
    re.X,
)
_IMPORT = re.compile(
    r"%\s*+import\s++common\s*+(?:\.\s*+(?P<one>\w++)\s*+(?:->\s*+(?P<alias>\w++)\s*+)?|\((?P<many>[\w\s,]*+)\)\s*+)"
    r"(?:(?://|\#).*)?"
)
_WHOLE = re.compile(r"\^?((?:[^\\]|\\.)*?)\$?", re.S)
"""A regular expression without the anchors at its ends: it matches whole texts anyway."""


class _Token(NamedTuple):
    kind: str
    text: str
    match: re.Match[str]


def is_lark(grammar: str) -> bool:
    """Return whether a grammar is Lark rather than EBNF, whose rules have "::="."""
    return "::=" not in re.sub(r"""(?m)"(?:\\.|[^"\\\n])*+"?|(?://|\#).*$""", "", grammar)


def lark_to_ebnf(grammar: str) -> str:
    """Return a Lark grammar in EBNF; its rule `start`, or else its first one, becomes `root`.

    Raises:
        LarkRefused: it cannot be translated, or no text ever ends one of its rules.
    """
    tokens = [token for token in _tokens(grammar) if token.kind != "space"]
    rules: dict[str, list[str]] = {}
    named: set[str] = set()
    first = ""
    for name, body in _rules([token for token in tokens if token.kind != "statement"]):
        if name in rules:
            raise LarkRefused(f"the rule '{name[:64]}' is there twice")
        rules[name] = _expression(body)
        named.update(token.text for token in body if token.kind == "name")
        first = first or name
    if not rules:
        raise LarkRefused("it has no rule")
    for name, expression in _imported(tokens):
        if name in rules:
            raise LarkRefused(f"the rule '{name[:64]}' is there twice")
        rules[name] = [f"({read_regex(expression)})"]
    if missing := named - rules.keys():
        raise LarkRefused(f"the rule '{min(missing)[:64]}' is nowhere")
    if (stuck := endless(rules)) is not None:
        raise LarkRefused(f"the rule '{stuck[:64]}' never ends: each of its alternatives needs the rule again")
    first = "start" if "start" in rules else first
    lines = [f"rule_{name} ::= {' '.join(parts)}" for name, parts in rules.items()]
    return "\n".join([f"root ::= rule_{first}", *lines])


def regex_to_ebnf(expression: str) -> str:
    """Return a regular expression, which matches whole texts, in EBNF.

    Raises:
        LarkRefused: it cannot be translated.
    """
    found = _WHOLE.fullmatch(expression)
    if found is None:
        raise LarkRefused("the regular expression ends within an escape sequence")
    return f"root ::= {read_regex(found[1])}"


def _imported(tokens: list[_Token]) -> Iterator[tuple[str, str]]:
    """Yield the name and the expression of each terminal that is imported."""
    for token in tokens:
        if token.kind != "statement":
            continue
        found = _IMPORT.fullmatch(token.text.strip())
        if found is None:
            raise LarkRefused(f"it uses '{token.text.strip()[:64]}'. Only 'common' can be imported from. Write it out")
        wanted = [found["one"]] if found["one"] else re.findall(r"\w+", found["many"])
        for name in wanted:
            if name not in COMMON:
                raise LarkRefused(f"'common' has no terminal '{name[:64]}' here. Write out what it stands for")
            yield found["alias"] or name, COMMON[name]


def _rules(tokens: list[_Token]) -> Iterator[tuple[str, list[_Token]]]:
    """Yield the name of each rule and the tokens after its colon."""
    starts = [
        index
        for index, token in enumerate(tokens)
        if token.kind == "name" and (index == 0 or tokens[index - 1].kind == "line") and _colon(tokens, index)
    ]
    if any(token.kind != "line" for token in tokens[: starts[0] if starts else None]):
        raise LarkRefused('it does not begin with a rule such as \'start: "yes" | "no"\'')
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=bool(starts)):
        body = [token for token in tokens[_colon(tokens, start) : end] if token.kind != "line"]
        yield tokens[start].text, body


def _tokens(grammar: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(grammar):
        kind = "times" if match["times"] else str(match.lastgroup)
        kind = {"flag": "text", "flags": "regex", "least": "times", "most": "times"}.get(kind, kind)
        if kind == "other":
            raise LarkRefused(f"it uses '{match.group()}', which is not supported")
        if match["flag"] or match["flags"]:
            raise LarkRefused("it uses flags of texts or regular expressions, which are not supported")
        yield _Token(kind, match.group().lstrip("!?") if kind == "name" else match.group(), match)


def _colon(tokens: list[_Token], index: int) -> int:
    """Return the index after the colon of a rule that begins at `index`, 0 where none begins."""
    index += 2 if tokens[index + 1 : index + 2] and tokens[index + 1].kind == "priority" else 1
    return index + 1 if index < len(tokens) and tokens[index].text == ":" else 0


def _expression(tokens: list[_Token]) -> list[str]:
    parts: list[str] = []
    index = 0
    while index < len(tokens):
        kind, text, match = tokens[index]
        index += 1
        if kind == "text":
            if tokens[index : index + 1] and tokens[index].kind == "range":
                parts.append(_range(text, tokens[index + 1].text if index + 1 < len(tokens) else ""))
                index += 2
            else:
                parts.append(text_of(_read_text(text)))
        elif kind == "regex":
            parts.append(f"({read_regex(text[1:-1])})")
        elif kind == "name":
            parts.append(f"rule_{text}")
        elif kind == "times":
            parts.append(f"{{{match['least']},{match['most'] or match['least']}}}")
        elif kind == "mark" and text != ":":
            parts.append({"[": "(", "]": ")?"}.get(text, text))
        elif kind != "alias":
            raise LarkRefused(f"'{text[:64]}' is out of place")
    for index, part in enumerate(parts):
        if part in ("|", "(") and parts[index + 1 : index + 2] in ([], ["|"], [")"], [")?"]):
            parts[index] += ' ""'  # An empty alternative.
    return (['""'] if not parts or parts[0].startswith("|") else []) + parts


def _range(first: str, last: str) -> str:
    ends = [_read_text(end) if end[:1] == '"' else "" for end in (first, last)]
    if any(len(end) != 1 for end in ends) or ends[0] > ends[1]:
        raise LarkRefused('a range has to be between two characters, such as "a".."z"')
    return class_of(((ord(ends[0]), ord(ends[1])),))


_ESCAPE = re.compile(r'\\(?:([nrtf])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(["\\]))')
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def _read_text(quoted: str) -> str:
    """Return what a text in quotes stands for; Lark keeps the backslash before any other letter."""

    def character(found: re.Match[str]) -> str:
        if found[1]:
            return _CONTROLS[found[1]]
        if found[5]:
            return found[5]
        code = int(found[2] or found[3] or found[4], 16)
        if not characters.intersection(((code, code),), characters.TEXT):
            raise LarkRefused(f"it uses '{found[0]}', which is no character")
        return chr(code)

    return _ESCAPE.sub(character, quoted[1:-1])
