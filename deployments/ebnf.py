"""Texts and sets of characters in EBNF, as xgrammar reads it: written, and read again where they were written here."""

import re
from collections.abc import Callable
from functools import lru_cache

from deployments import characters
from deployments.characters import Ranges

_IN_TEXT = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}
_IN_CLASS = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\", "]": r"\]", "[": r"\[", "^": r"\^", "-": r"\-"}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_WRITTEN = re.compile(r'"((?:\\.|[^"\\])*)"|\[(\^?)((?:\\.|[^\]\\])*)\]', re.S)
_ONE = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|(.))|(.)", re.S)
_RANGE = re.compile(rf"({_ONE.pattern})(?:-({_ONE.pattern}))?", re.S)


def text_of(text: str) -> str:
    """Return a text in quotes."""
    return '"' + "".join(_IN_TEXT.get(char) or _plain(char) for char in text) + '"'


@lru_cache(maxsize=256)
def class_of(ranges: Ranges) -> str:
    """Return a set of characters in brackets; one that reaches to the last character is written by what it lacks.

    No set has surrogates: the compiler would let a model write their bytes, which are no text.
    """
    ranges = characters.intersection(ranges, characters.TEXT)
    others = characters.complement(ranges)
    is_negated = ranges[-1][1] == characters.LAST
    ends = [(_in_class(low), _in_class(high)) for low, high in (others if is_negated else ranges)]
    return ("[^" if is_negated else "[") + "".join(low if low == high else f"{low}-{high}" for low, high in ends) + "]"


def _in_class(code: int) -> str:
    return _IN_CLASS.get(chr(code)) or _plain(chr(code))


def _plain(char: str) -> str:
    if char.isascii() and char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


def rewritten(grammar: str, text: Callable[[str], str], ranges: Callable[[Ranges], str]) -> str:
    """Return a grammar in which functions have rewritten each text and each set of characters."""
    known: dict[str, str] = {}

    def rewrite(found: re.Match[str]) -> str:
        if found[0] not in known:
            known[found[0]] = text(_text_in(found)) if found[1] is not None else ranges(_ranges_in(found))
        return known[found[0]]

    return _WRITTEN.sub(rewrite, grammar)


def _text_in(found: re.Match[str]) -> str:
    return "".join(map(_read, _ONE.finditer(found[1])))


def _ranges_in(found: re.Match[str]) -> Ranges:
    held = characters.union(map(_ends, _RANGE.finditer(found[3])))
    return characters.intersection(characters.complement(held), characters.TEXT) if found[2] else held


def _read(one: re.Match[str] | tuple[str | None, ...]) -> str:
    code = one[1] or one[2]
    if code:
        return chr(int(code, 16))
    return _CONTROLS.get(one[3], one[3]) if one[3] else str(one[4])


def _ends(found: re.Match[str]) -> tuple[int, int]:
    first = ord(_read(found.groups()[0:5]))
    return first, first if found[6] is None else ord(_read(found.groups()[5:10]))
