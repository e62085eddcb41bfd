"""Regular expressions of schemas: read by Python's own parser, narrowed to what all readings share, and written anew.

A schema's pattern may match anywhere in a text, so what is written here says what may stand around it. Characters that
JSON would have to escape are left out where a pattern does not insist on them.
"""

import re
import re._constants as constants  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from dataclasses import dataclass
from typing import Any

from deployments.replica.schemas.rewriting import characters
from deployments.replica.schemas.rewriting.characters import Ranges


class PatternRefused(Exception):
    """What a pattern holds that cannot be kept."""


@dataclass(frozen=True)
class One:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Row:
    """One part after the other."""

    parts: tuple["Pattern", ...]


@dataclass(frozen=True)
class Either:
    """Any one of several; of none, nothing matches."""

    parts: tuple["Pattern", ...]


@dataclass(frozen=True)
class Repeated:
    """A part between `least` and `most` times, without end where that is None."""

    part: "Pattern"
    least: int
    most: int | None


Pattern = One | Row | Either | Repeated

NOTHING = Row(())
NEVER = Either(())
ANYTHING = Repeated(One(characters.SAFE), 0, None)

# What a class of characters holds in every reading, and what it holds in one of them.
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
"""Code points in braces and names of groups; characters that are escaped are only passed over."""
_OPEN, _EDGE, _INNER = range(3)
"""Where a part stands: at an end that is not anchored, at one that is, or within."""


def read(pattern: str, *, is_whole: bool = False) -> Pattern:
    """Return a regular expression as a pattern of the whole text in which it is found, or that it matches as a whole.

    Raises:
        PatternRefused: it cannot be read, or holds what cannot be kept.
    """
    try:
        parsed = parser.parse(_in_pythons_words(pattern))
    except (re.error, RecursionError, OverflowError):
        raise PatternRefused("it is not a regular expression that can be read") from None
    if parsed.state.flags & ~re.UNICODE:
        raise PatternRefused("it sets flags")
    edge = _EDGE if is_whole else _OPEN
    return _whole(list(parsed), edge, edge)


def _in_pythons_words(pattern: str) -> str:
    """Return an expression with the code points and names of groups of other dialects written as Python does."""
    return _FOREIGN.sub(lambda found: f"\\U{int(found[1], 16):08x}" if found[1] else found[2] or "(?P<", pattern)


def _whole(items: list[Any], left: int, right: int) -> Pattern:
    while (
        items
        and items[0][0] is constants.AT
        and items[0][1]
        in (
            constants.AT_BEGINNING,
            constants.AT_BEGINNING_STRING,
        )
    ):
        if left == _INNER:
            raise PatternRefused("it has an anchor within")
        left, items = _EDGE, items[1:]
    while items and items[-1][0] is constants.AT and items[-1][1] in (constants.AT_END, constants.AT_END_STRING):
        if right == _INNER:
            raise PatternRefused("it has an anchor within")
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
        raise PatternRefused("it sets flags")
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
        return One(_class(argument))
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
        raise PatternRefused("it has a word boundary" if is_boundary else "it has an anchor within")
    raise PatternRefused(f"it has {_NAMES.get(operator, 'a construct that is not known')}")


def _class(items: list[Any]) -> Ranges:
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


def row(parts: Any) -> Pattern:
    """Return parts one after the other."""
    flat: list[Pattern] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Row) else [part])
    return flat[0] if len(flat) == 1 else Row(tuple(flat))


def either(parts: Any) -> Pattern:
    """Return any one of some parts."""
    kept = tuple(dict.fromkeys(part for part in parts if part != NEVER))
    return kept[0] if len(kept) == 1 else Either(kept)


def widths(pattern: Pattern) -> tuple[int, int | None]:
    """Return the number of characters of the shortest and of the longest text, None where there is no longest."""
    match pattern:
        case One():
            return 1, 1
        case Row(parts):
            all_widths = [widths(part) for part in parts]
            longest = [most for _, most in all_widths]
            return sum(least for least, _ in all_widths), None if None in longest else sum(map(int, longest))  # type: ignore[arg-type]
        case Either(parts):
            all_widths = [widths(part) for part in parts] or [(0, 0)]
            longest = [most for _, most in all_widths]
            return min(least for least, _ in all_widths), None if None in longest else max(map(int, longest))  # type: ignore[arg-type]
        case Repeated(part, least, most):
            shortest, widest = widths(part)
            if most == 0 or widest == 0:
                return shortest * least, 0
            return shortest * least, None if most is None or widest is None else widest * most


def without_unsafe(pattern: Pattern) -> Pattern:
    """Return a pattern without the texts that JSON would have to escape; `NEVER` where there is no other."""
    return within(pattern, characters.SAFE)


def within(pattern: Pattern, allowed: Ranges) -> Pattern:
    """Return a pattern of the texts that consist of some characters alone; `NEVER` where there are none."""
    match pattern:
        case One(ranges):
            kept = characters.intersection(ranges, allowed)
            return One(kept) if kept else NEVER
        case Row(parts):
            inner = [within(part, allowed) for part in parts]
            return NEVER if NEVER in inner else row(inner)
        case Either(parts):
            return either(within(part, allowed) for part in parts)
        case Repeated(part, least, most):
            inner_part = within(part, allowed)
            if inner_part == NEVER:
                return NEVER if least else NOTHING
            return Repeated(inner_part, least, most)


def simplified(pattern: Pattern) -> Pattern:
    """Return a pattern of the same texts without a repetition of what may be nothing, which takes long to follow."""
    match pattern:
        case One():
            return pattern
        case Row(parts):
            return row(map(simplified, parts))
        case Either(parts):
            return either(map(simplified, parts))
        case Repeated(part, least, most):
            part = simplified(part)
            if widths(part)[1] == 0:
                return NOTHING
            if most is None and isinstance(part, Repeated) and part.most is None and part.least <= 1:
                return Repeated(part.part, min(least, 1) * part.least, None)
            if most is None and _may_be_nothing(part):
                return Repeated(_without_nothing(part), 0, None)
            return Repeated(part, least, most)


def _may_be_nothing(pattern: Pattern) -> bool:
    return widths(pattern)[0] == 0


def _without_nothing(pattern: Pattern) -> Pattern:
    """Return a pattern that repeated is the same, but which is not nothing, as far as that is simple."""
    match pattern:
        case Either(parts):
            return either(_without_nothing(part) for part in parts if part != NOTHING)
        case Repeated(part, 0, most) if not _may_be_nothing(part):
            return part if most is None else Repeated(part, 1, most)
    return pattern


def repeats_what_varies(pattern: Pattern) -> bool:
    """Return whether a text may be matched in many ways, which may take long to follow."""
    match pattern:
        case One():
            return False
        case Row(parts) | Either(parts):
            return any(map(repeats_what_varies, parts))
        case Repeated(part, _, most):
            shortest, widest = widths(part)
            return (most != 1 and shortest != widest) or repeats_what_varies(part)


def fitted(pattern: Pattern, least: int, most: int | None) -> Pattern | None:
    """Return a pattern whose texts all have these lengths, and are among those of the given one; None if none is found.

    Repetitions of single characters are bounded; where there are several, they share the room.
    """
    if isinstance(pattern, Either):
        parts = [part for part in (fitted(one, least, most) for one in pattern.parts) if part is not None]
        return either(parts) if parts else None
    parts = list(pattern.parts) if isinstance(pattern, Row) else [pattern]
    shortest = sum(widths(part)[0] for part in parts)
    if most is not None:
        if shortest > most:
            return None
        parts = _shortened(parts, shortest, most)
    missing = least - sum(widths(part)[0] for part in parts)
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        if missing > 0 and isinstance(part, Repeated) and widths(part.part) == (1, 1):
            more = missing if part.most is None else min(missing, part.most - part.least)
            parts[index] = Repeated(part.part, part.least + more, part.most)
            missing -= more
    found = row(parts)
    shortest, longest = widths(found)
    is_fitting = shortest >= least and (most is None or (longest is not None and longest <= most))
    return found if is_fitting else None


def _shortened(parts: list[Pattern], shortest: int, most: int) -> list[Pattern]:
    """Return parts with repetitions bounded so that each may take an equal part of the room that is left."""
    stretching = [index for index, part in enumerate(parts) if widths(part)[1] != widths(part)[0]]
    room = most - shortest
    result = list(parts)
    # Those that need the least come first, so that what they leave goes to the others.
    stretching.sort(key=lambda index: (widths(parts[index])[1] is None, widths(parts[index])[1] or 0))
    for number, index in enumerate(stretching):
        part = parts[index]
        low, high = widths(part)
        share = room // (len(stretching) - number)
        if high is None or high - low > share:
            if not isinstance(part, Repeated):
                continue
            widest = widths(part.part)[1]
            if widest is None or widest == 0:
                continue
            bound = (low + share) // widest
            if bound < part.least:
                continue
            part = Repeated(part.part, part.least, bound if part.most is None else min(part.most, bound))
            result[index] = part
            high = widths(part)[1]
        room -= (high or 0) - low
    return result


def found_in_turn(first: Pattern, then: Pattern) -> Pattern | None:
    """Return a pattern whose texts match both; None where there is no simple one."""
    if first == then or then == ANYTHING:
        return first
    if first == ANYTHING:
        return then
    for one, other in ((first, then), (then, first)):
        if _is_open(one, -1) and _is_open(other, 0):
            return row([one, other])
    return None


def _is_open(pattern: Pattern, end: int) -> bool:
    return isinstance(pattern, Row) and bool(pattern.parts) and pattern.parts[end] == ANYTHING


def all_but(words: list[str]) -> Pattern:
    """Return every text but these."""
    endings: dict[str, list[str]] = {}
    for word in words:
        if word:
            endings.setdefault(word[0], []).append(word[1:])
    others = characters.intersection(characters.SAFE, characters.complement(characters.of("".join(endings))))
    parts: list[Pattern] = [] if "" in words else [NOTHING]
    parts.append(row([One(others), ANYTHING]))
    parts += [row([One(characters.of(first)), all_but(rest)]) for first, rest in endings.items()]
    return either(parts)


def exclude_each_other(one: Pattern, other: Pattern) -> bool:
    """Return whether no text matches both, as far as their beginnings show."""
    for first, second in zip(_beginning(one), _beginning(other), strict=False):
        if not characters.intersection(first, second):
            return True
    return False


def _beginning(pattern: Pattern) -> list[Ranges]:
    """Return the sets of the characters with which each text begins."""
    found = []
    for part in pattern.parts if isinstance(pattern, Row) else [pattern]:
        if not isinstance(part, One):
            break
        found.append(part.ranges)
    return found
