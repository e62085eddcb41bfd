"""Reads regular expressions as patterns, and writes patterns as regular expressions that a grammar compiler keeps.

An expression of a schema may match anywhere in a text, so its pattern includes the text around it. Python's own parser
reads it; where dialects differ, the pattern is narrowed to the texts that all of them accept.

Written are groups, alternatives, counted repetitions and sets of characters only. A JSON string holds quotes,
backslashes and control characters only escaped. A pattern's texts with those are left out, unless it has no others.
"""

import re
import re._constants as constants  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable
from typing import Any

from deployments import characters
from deployments.characters import Ranges
from deployments.replica.schemas.rewriting.parts import Place, SchemaRefused
from deployments.replica.schemas.rewriting.patterns import (
    ANYTHING,
    NEVER,
    NOTHING,
    Either,
    One,
    Pattern,
    Repeated,
    Row,
    either,
    repeats_what_varies,
    row,
    simplified,
    within,
    without_unsafe,
)

# The characters of a class in every dialect (`_SURE`), and in any dialect (`_MAYBE`).
_SURE = {
    constants.CATEGORY_DIGIT: characters.DIGITS,
    constants.CATEGORY_NOT_DIGIT: characters.intersection(characters.ASCII, characters.complement(characters.DIGITS)),
    constants.CATEGORY_SPACE: characters.SURE_SPACES,
    constants.CATEGORY_NOT_SPACE: characters.complement(characters.SPACES),
    constants.CATEGORY_WORD: characters.WORD,
    constants.CATEGORY_NOT_WORD: characters.intersection(characters.ASCII, characters.complement(characters.WORD)),
}
_OPPOSITE = {
    constants.CATEGORY_DIGIT: constants.CATEGORY_NOT_DIGIT,
    constants.CATEGORY_SPACE: constants.CATEGORY_NOT_SPACE,
    constants.CATEGORY_WORD: constants.CATEGORY_NOT_WORD,
}
_OPPOSITE |= {there: here for here, there in _OPPOSITE.items()}
_MAYBE = {here: characters.complement(_SURE[there]) for here, there in _OPPOSITE.items()}
_NAMES = {
    constants.ASSERT: "look-around",
    constants.ASSERT_NOT: "look-around",
    constants.GROUPREF: "a back reference",
    constants.GROUPREF_EXISTS: "a back reference",
    constants.ATOMIC_GROUP: "an atomic group",
    constants.POSSESSIVE_REPEAT: "a possessive repetition",
}
_FOREIGN = re.compile(r"\\[ux]\{([0-9a-fA-F]{1,6})\}|(\\.)|\(\?<(?![=!])", re.DOTALL)
"""Code points in braces, and names of groups; escaped characters match, too, to be skipped."""
_OPEN, _EDGE, _INNER = range(3)
"""Where a part stands: at an end without an anchor, at an end with one, or inside."""
_BEGINNINGS = (constants.AT_BEGINNING, constants.AT_BEGINNING_STRING)
_ENDS = (constants.AT_END, constants.AT_END_STRING)

_ESCAPES = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_UNSAFE = characters.intersection(characters.complement(characters.SAFE), characters.ASCII)
_MARK = "\x7f{0}"
"""Matches nothing. Without this character xgrammar makes one automaton of an expression, which knows no backslash, and
accepts wrong texts for some nested repetitions."""
_BACKSLASH = r"\u{5c}"
_UNESCAPED = r"[\u{20}\u{21}\u{23}-\u{5b}\u{5d}-\u{d7ff}\u{e000}-\u{10ffff}]"
_ANY = rf"(?:{_UNESCAPED}|{_BACKSLASH}[\u{{22}}\u{{5c}}/bfnrt])"


class _Unsupported(Exception):
    """An expression has a construct that cannot be kept."""


def read(expression: str, place: Place = (), *, is_whole: bool = False) -> Pattern:
    """Return the pattern of the texts in which an expression is found, or which it matches as a whole.

    Raises:
        SchemaRefused: the expression at `place` cannot be read, or holds a construct that cannot be kept.
    """
    edge = _EDGE if is_whole else _OPEN
    try:
        return _whole(_parsed(expression), edge, edge)
    except _Unsupported as why:
        raise SchemaRefused(place, f"is not supported: {why}. Use classes, groups and repetitions.") from None


def _parsed(expression: str) -> list[Any]:
    # Other dialects write code points and names of groups differently.
    pythons = _FOREIGN.sub(lambda found: f"\\U{int(found[1], 16):08x}" if found[1] else found[2] or "(?P<", expression)
    try:
        parsed = parser.parse(pythons)
    except (re.error, RecursionError, OverflowError):
        raise _Unsupported("it is not a regular expression that can be read") from None
    if parsed.state.flags & ~re.UNICODE:
        raise _Unsupported("it sets flags")
    return list(parsed)


def _whole(items: list[Any], left: int, right: int) -> Pattern:
    while items and items[0][0] is constants.AT and items[0][1] in _BEGINNINGS:
        if left == _INNER:
            raise _Unsupported("it has an anchor within")
        left, items = _EDGE, items[1:]
    while items and items[-1][0] is constants.AT and items[-1][1] in _ENDS:
        if right == _INNER:
            raise _Unsupported("it has an anchor within")
        right, items = _EDGE, items[:-1]
    if not items:
        return ANYTHING if _OPEN in (left, right) else NOTHING
    if len(items) == 1:
        operator, argument = items[0]
        if operator is constants.SUBPATTERN:
            return _whole(_inside(argument), left, right)
        if operator is constants.BRANCH:
            return either(_whole(list(branch), left, right) for branch in argument[1])
    parts: list[Pattern] = []
    for index, item in enumerate(items):
        at_left = left if index == 0 else _INNER
        at_right = right if index == len(items) - 1 else _INNER
        is_group = item[0] in (constants.SUBPATTERN, constants.BRANCH)
        if is_group and (at_left, at_right) != (_INNER, _INNER) and _has_anchor(item):
            parts.append(_whole([item], at_left, at_right))
            continue
        parts += [ANYTHING] * (at_left == _OPEN) + [_part(item)] + [ANYTHING] * (at_right == _OPEN)
    return row(parts)


def _has_anchor(item: Any) -> bool:
    operator, argument = item
    if operator is constants.SUBPATTERN:
        return any(map(_has_anchor, argument[3]))
    if operator is constants.BRANCH:
        return any(map(_has_anchor, (one for branch in argument[1] for one in branch)))
    return operator is constants.AT


def _inside(argument: Any) -> list[Any]:
    _, added, removed, items = argument
    if added or removed:
        raise _Unsupported("it sets flags")
    return list(items)


def _part(item: Any) -> Pattern:
    operator, argument = item
    if operator is constants.LITERAL:
        return One(((argument, argument),))
    if operator is constants.NOT_LITERAL:
        return One(characters.complement(((argument, argument),)))
    if operator is constants.ANY:
        return One(characters.complement(characters.BREAKS))
    if operator is constants.IN:
        return One(_ranges_of(argument))
    if operator in (constants.MAX_REPEAT, constants.MIN_REPEAT):
        least, most, items = argument
        part = row(_part(one) for one in items)
        return Repeated(part, int(least), None if most is constants.MAXREPEAT else int(most))
    if operator is constants.SUBPATTERN:
        return row(_part(one) for one in _inside(argument))
    if operator is constants.BRANCH:
        return either(row(_part(one) for one in branch) for branch in argument[1])
    if operator is constants.AT:
        is_boundary = argument in (constants.AT_BOUNDARY, constants.AT_NON_BOUNDARY)
        raise _Unsupported("it has a word boundary" if is_boundary else "it has an anchor within")
    raise _Unsupported(f"it has {_NAMES.get(operator, 'a construct that is not known')}")


def _ranges_of(items: list[Any]) -> Ranges:
    is_negated = bool(items) and items[0][0] is constants.NEGATE
    held: list[tuple[int, int]] = []
    for operator, argument in items:
        if operator is constants.LITERAL:
            held.append((argument, argument))
        elif operator is constants.RANGE:
            held.append(argument)
        elif operator is constants.CATEGORY:
            held.extend((_MAYBE if is_negated else _SURE)[argument])
    ranges = characters.union(held)
    return characters.complement(ranges) if is_negated else ranges


def any_text(least: int, most: int | None, *, has_escapes: bool = True) -> str:
    """Return the expression of strings with `least` to `most` characters; None is no bound. An escape counts as one."""
    one = _ANY if has_escapes else _UNESCAPED
    return f"^{_MARK}{one}{{{least},{'' if most is None else most}}}$"


def in_json(pattern: Pattern, *, has_escapes: bool = True) -> str | None:
    """Return the expression of a pattern's texts as the content of JSON strings; None if there are none."""
    safe = without_unsafe(pattern)
    if safe != NEVER or not has_escapes:
        pattern = safe
    return f"^{_MARK}{_within_row(simplified(pattern), _set)}$" if _can_be_written(pattern) else None


def in_text(pattern: Pattern) -> str | None:
    """Return the expression of a pattern's texts outside of JSON; None if there are none."""
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
    """Return the characters that JSON writes as they are, and those that it escapes."""
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
    """Return whether an expression that was written here repeats parts of varying length."""
    readable = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", expression)
    return repeats_what_varies(read(readable.replace(_MARK, "")))
