"""Translates Lark grammars into the EBNF that the engine's compiler reads.

Lark's notation: https://lark-parser.readthedocs.io/en/stable/grammar.html. Supports rules, terminals, texts, ranges,
groups, optional parts, repetitions, and regular expressions without assertions. Aliases and priorities are dropped:
they affect how a text is parsed, not whether it matches. Linear in time; the result is about ten times as long at most.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f]+|(?://|\#)[^\n]*)
    | (?P<line>\n\s*)
    | (?P<text>"(?:\\.|[^"\\\n])*")(?P<flag>i?)
    | (?P<regex>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/)(?P<flags>[imslux]*)
    | (?P<alias>->\s*\w+)
    | (?P<times>~\s*(?P<least>\d+)(?:\s*\.\.\s*(?P<most>\d+))?)
    | (?P<range>\.\.)
    | (?P<name>[!?]*[A-Za-z_]\w*)
    | (?P<priority>\.\d+)
    | (?P<mark>[:|()\[\]?*+])
    | (?P<statement>%\s*\w*)
    | (?P<other>.)""",
    re.X,
)
_REGEX_TOKEN = re.compile(
    r"""(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?:)?)(?P<assertion>\?)?
    | (?P<repeated>(?:[*+?]|\{\d+(?:,\d*)?\})\??)
    | (?P<mark>[)|])
    | (?P<dot>\.)
    | \\(?P<escape>.)
    | (?P<edge>[\^$])
    | (?P<letter>.)""",
    re.X | re.S,
)
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\r\f\v"}
_CONTROLS = frozenset("tnrfv")


class LarkRefused(ValueError):
    """The grammar is not valid, or uses something that EBNF lacks; the message names it."""


class _Token(NamedTuple):
    kind: str
    text: str
    match: re.Match[str]


def is_lark(grammar: str) -> bool:
    """Return whether a grammar is Lark rather than EBNF, whose rules have "::="."""
    return "::=" not in re.sub(r"""(?m)"(?:\\.|[^"\\\n])*"|(?://|\#).*$""", "", grammar)


def lark_to_ebnf(grammar: str) -> str:
    """Return a Lark grammar in EBNF; its rule `start`, or else its first one, becomes `root`.

    Raises:
        LarkRefused: it cannot be translated.
    """
    rules: dict[str, list[str]] = {}
    named: set[str] = set()
    for name, tokens in _rules(grammar):
        if name in rules:
            raise LarkRefused(f"the rule '{name[:64]}' is there twice")
        rules[name] = _expression(tokens)
        named.update(token.text for token in tokens if token.kind == "name")
    if not rules:
        raise LarkRefused("it has no rule")
    if missing := named - rules.keys():
        raise LarkRefused(f"the rule '{min(missing)[:64]}' is nowhere")
    first = "start" if "start" in rules else next(iter(rules))
    lines = [f"rule_{name} ::= {' '.join(parts)}" for name, parts in rules.items()]
    return "\n".join([f"root ::= rule_{first}", *lines])


def _rules(grammar: str) -> Iterator[tuple[str, list[_Token]]]:
    """Yield the name of each rule and the tokens after its colon."""
    tokens = [token for token in _tokens(grammar) if token.kind != "space"]
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
        if kind == "statement":
            raise LarkRefused(f"it uses '{match.group()[:64]}'. Write out what it stands for")
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
                parts.append(text)
        elif kind == "regex":
            parts.append(f"({_regex(text[1:-1])})")
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
    ends = [first[1:-1], last[1:-1]]
    if any(len(end.removeprefix("\\")) != 1 for end in ends):
        raise LarkRefused('a range has to be between two characters, such as "a".."z"')
    return "[" + "-".join(end if end.startswith("\\") or end not in "]^-[" else f"\\{end}" for end in ends) + "]"


def _regex(pattern: str) -> str:
    parts: list[str] = []
    for match in _REGEX_TOKEN.finditer(pattern):
        kind, text = str(match.lastgroup), match.group()
        if kind in ("assertion", "edge") or (kind == "escape" and text[1] in "AbBZz123456789DWSpPxuN"):
            raise LarkRefused(f"a regular expression uses '{text}', which is not supported")
        if kind == "class":
            parts.append(_class(text))
        elif kind == "open":
            parts.append("(")
        elif kind == "repeated":
            parts.append("?" if text[0] == "?" else text.rstrip("?"))  # Lazy or not, the texts are the same.
        elif kind == "mark":
            parts.append(text)
        elif kind == "dot":
            parts.append("[^\\n]")
        elif kind == "escape":
            parts.append(_escape(text[1]))
        else:
            parts.append('"\\""' if text == '"' else f'"{text}"')
    return " ".join(parts)


def _escape(letter: str) -> str:
    if letter in _CLASSES:
        return f"[{_CLASSES[letter]}]"
    if letter in _CONTROLS:
        return f'"\\{letter}"'
    return f'"\\{letter}"' if letter in '"\\' else f'"{letter}"'


def _class(text: str) -> str:
    def translate(match: re.Match[str]) -> str:
        letter = match[1]
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _CONTROLS or letter in "]\\-^[":
            return match.group()
        if letter.isalnum():
            raise LarkRefused(f"a regular expression uses '{match.group()}', which is not supported")
        return letter

    return re.sub(r"\\(.)", translate, re.sub(r"^(\[\^?)\]", r"\1\\]", text), flags=re.S)
