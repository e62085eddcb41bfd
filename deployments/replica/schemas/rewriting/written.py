"""Writes patterns as regular expressions of JSON strings, in the constructs that a grammar compiler takes as they are.

Those are groups, alternatives, counted repetitions and sets of characters. A JSON string holds quotes, backslashes and
control characters only escaped, so where a pattern insists on them, the expression has the escapes in their place.
"""

import re
from collections.abc import Callable

from deployments.replica.schemas.rewriting import characters
from deployments.replica.schemas.rewriting.characters import Ranges
from deployments.replica.schemas.rewriting.patterns import (
    NEVER,
    Either,
    One,
    Pattern,
    Repeated,
    Row,
    read,
    repeats_what_varies,
    simplified,
    within,
    without_unsafe,
)

_ESCAPES = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_UNSAFE = characters.intersection(characters.complement(characters.SAFE), characters.ASCII)
_MARK = "\x7f{0}"
"""Nothing, in a character without which xgrammar makes an expression into one automaton.

That knows no backslash, and takes wrong texts for some repetitions within others.
"""
_BACKSLASH = r"\u{5c}"
_UNESCAPED = r"[\u{20}\u{21}\u{23}-\u{5b}\u{5d}-\u{d7ff}\u{e000}-\u{10ffff}]"
_ANY = rf"(?:{_UNESCAPED}|{_BACKSLASH}[\u{{22}}\u{{5c}}/bfnrt])"


def any_text(least: int, most: int | None, *, has_escapes: bool = True) -> str:
    """Return the expression of strings with `least` to `most` characters; None is no bound. Escapes count as one."""
    one = _ANY if has_escapes else _UNESCAPED
    return f"^{_MARK}{one}{{{least},{'' if most is None else most}}}$"


def in_json(pattern: Pattern, *, has_escapes: bool = True) -> str | None:
    """Return the expression of the strings' content whose texts a pattern matches; None where there are none."""
    safe = without_unsafe(pattern)
    if safe != NEVER or not has_escapes:
        pattern = safe
    return f"^{_MARK}{_within_row(simplified(pattern), _set)}$" if _can_be_written(pattern) else None


def in_text(pattern: Pattern) -> str | None:
    """Return the expression of the texts that a pattern matches, outside of JSON; None where there are none."""
    pattern = within(pattern, characters.TEXT)
    return None if pattern == NEVER else _MARK + _within_row(simplified(pattern), _class)


def _can_be_written(pattern: Pattern) -> bool:
    match pattern:
        case One(ranges):
            return bool(_split(ranges)[0] or _split(ranges)[1])
        case Row(parts):
            return all(map(_can_be_written, parts))
        case Either(parts):
            return any(map(_can_be_written, parts))
        case Repeated(part, least, _):
            return least == 0 or _can_be_written(part)


def _split(ranges: Ranges) -> tuple[Ranges, Ranges]:
    """Return those that stand for themselves, and those that are escaped."""
    return characters.intersection(ranges, characters.SAFE), characters.intersection(ranges, _UNSAFE)


def _expression(pattern: Pattern, write: Callable[[Ranges], str]) -> str:
    match pattern:
        case One(ranges):
            return write(ranges)
        case Row(parts):
            return "".join(_within_row(part, write) for part in parts)
        case Either(parts):
            return "|".join(_expression(part, write) for part in parts if _can_be_written(part))
        case Repeated(part, least, most):
            if not _can_be_written(part):
                return ""
            bounds = "{" + (str(least) if most == least else f"{least},{'' if most is None else most}") + "}"
            short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
            one = _expression(part, write)
            return (one if isinstance(part, One) else f"(?:{one})") + short.get((least, most), bounds)


def _within_row(pattern: Pattern, write: Callable[[Ranges], str]) -> str:
    expression = _expression(pattern, write)
    return f"(?:{expression})" if isinstance(pattern, Either) else expression


def _set(ranges: Ranges) -> str:
    plain, escaped = _split(ranges)
    choices = [_class(plain)] if plain else []
    for low, high in escaped:
        for code in range(low, high + 1):
            short = _ESCAPES.get(chr(code))
            choices.append(_BACKSLASH + (_plain(ord(short)) if short else f"u{code:04x}"))
    return choices[0] if len(choices) == 1 and plain else f"(?:{'|'.join(choices)})"


def _class(ranges: Ranges) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _plain(ranges[0][0])
    return "[" + "".join(_plain(low) if low == high else f"{_plain(low)}-{_plain(high)}" for low, high in ranges) + "]"


def _plain(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\u{{{code:02x}}}"


def may_be_slow(expression: str) -> bool:
    """Return whether an expression that was written here repeats what is not of one length."""
    readable = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", expression)
    return repeats_what_varies(read(readable.replace(_MARK, "")))
