"""Patterns: sets of texts as values, which can be narrowed, joined and fitted to a length.

`expressions` reads them from regular expressions, and writes them as such.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from deployments import characters
from deployments.characters import Ranges


@dataclass(frozen=True)
class One:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Row:
    """Parts one after the other."""

    parts: tuple["Pattern", ...]


@dataclass(frozen=True)
class Either:
    """Any one of several parts; without parts, nothing matches."""

    parts: tuple["Pattern", ...]


@dataclass(frozen=True)
class Repeated:
    """A part, `least` to `most` times; None is no bound."""

    part: "Pattern"
    least: int
    most: int | None


Pattern = One | Row | Either | Repeated

NOTHING = Row(())
NEVER = Either(())
ANYTHING = Repeated(One(characters.SAFE), 0, None)


def row(parts: Iterable[Pattern]) -> Pattern:
    """Return the pattern of parts one after the other."""
    flat: list[Pattern] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Row) else [part])
    return flat[0] if len(flat) == 1 else Row(tuple(flat))


def either(parts: Iterable[Pattern]) -> Pattern:
    """Return the pattern of any one of some parts."""
    kept = tuple(dict.fromkeys(part for part in parts if part != NEVER))
    return kept[0] if len(kept) == 1 else Either(kept)


def widths(pattern: Pattern) -> tuple[int, int | None]:
    """Return the lengths of the shortest and the longest text in characters; None if there is no longest."""
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
    """Return the pattern of the texts that JSON need not escape; `NEVER` if there are none."""
    return within(pattern, characters.SAFE)


def within(pattern: Pattern, allowed: Ranges) -> Pattern:
    """Return the pattern of the texts with allowed characters only; `NEVER` if there are none."""
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
    """Return an equal pattern without repetitions of parts that may be empty; those take long to follow."""
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
            if most is None and widths(part)[0] == 0:
                return Repeated(_without_empty(part), 0, None)
            return Repeated(part, least, most)


def _without_empty(pattern: Pattern) -> Pattern:
    """Return a pattern that matches the same when repeated, but no empty text, as far as that is simple."""
    match pattern:
        case Either(parts):
            return either(_without_empty(part) for part in parts if part != NOTHING)
        case Repeated(part, 0, most) if widths(part)[0] > 0:
            return part if most is None else Repeated(part, 1, most)
    return pattern


def repeats_what_varies(pattern: Pattern) -> bool:
    """Return whether a pattern may match a text in many ways, which may take long to follow."""
    match pattern:
        case One():
            return False
        case Row(parts) | Either(parts):
            return any(map(repeats_what_varies, parts))
        case Repeated(part, _, most):
            shortest, widest = widths(part)
            return (most != 1 and shortest != widest) or repeats_what_varies(part)


def fitted(pattern: Pattern, least: int, most: int | None) -> Pattern | None:
    """Return a narrower pattern whose texts have `least` to `most` characters; None if none is found.

    Repetitions of single characters are bounded; several repetitions share the length.
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
    """Return parts with bounded repetitions; each gets an equal share of the length that is left."""
    stretching = [index for index, part in enumerate(parts) if widths(part)[1] != widths(part)[0]]
    room = most - shortest
    result = list(parts)
    # The shortest come first, so that the others get what these do not need.
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
    """Return a pattern whose texts match both; None if there is no simple one."""
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
    """Return the pattern of all texts but these."""
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
    """Return whether no text matches both, judged by their first characters."""
    for first, second in zip(_beginning(one), _beginning(other), strict=False):
        if not characters.intersection(first, second):
            return True
    return False


def _beginning(pattern: Pattern) -> list[Ranges]:
    """Return the sets of characters at the start of every text."""
    found = []
    for part in pattern.parts if isinstance(pattern, Row) else [pattern]:
        if not isinstance(part, One):
            break
        found.append(part.ranges)
    return found
