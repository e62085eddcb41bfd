"""Strings of a length, a pattern or a format."""

from typing import Any

from deployments.replica.schemas.rewriting import patterns
from deployments.replica.schemas.rewriting.formats import FORMATS
from deployments.replica.schemas.rewriting.gathering import Together
from deployments.replica.schemas.rewriting.patterns import ANYTHING, Pattern, PatternRefused
from deployments.replica.schemas.rewriting.refusal import Place, SchemaRefused
from deployments.replica.schemas.rewriting.written import any_text, in_json


def string_form(together: Together, *, has_escapes: bool) -> dict[str, Any] | None:
    """Return the schema of the strings that some parts take together; None where there are none.

    Without `has_escapes` no character is escaped as JSON has it.

    Raises:
        SchemaRefused: a word cannot be kept, by itself or beside the others.
    """
    pattern, least, most, place = _constraints(together)
    if most is not None and least > most:
        return None
    if pattern is None:
        return (
            {"type": "string"}
            if (least, most) == (0, None)
            else _of_pattern(any_text(least, most, has_escapes=has_escapes))
        )
    fitting = pattern if (least, most) == (0, None) else _fitted(pattern, least, most, place)
    expression = None if fitting is None else in_json(fitting, has_escapes=has_escapes)
    if expression is None:
        raise SchemaRefused(place, "leaves no text that can be written without escapes. Use plainer characters.")
    return _of_pattern(expression)


def names_pattern(together: Together) -> Pattern | None:
    """Return the pattern of the names that some parts take together; None where any name is taken.

    Raises:
        SchemaRefused: a word cannot be kept, by itself or beside the others.
    """
    pattern, least, most, place = _constraints(together)
    if (least, most) != (0, None):
        if most is not None and least > most:
            return patterns.NEVER
        pattern = _fitted(ANYTHING if pattern is None else pattern, least, most, place)
    return pattern if pattern is None else patterns.without_unsafe(pattern)


def _of_pattern(expression: str) -> dict[str, Any]:
    return {"type": "string", "pattern": expression}


def _fitted(pattern: Pattern, least: int, most: int | None, place: Place) -> Pattern:
    safe = patterns.without_unsafe(pattern)
    fitting = patterns.fitted(pattern if safe == patterns.NEVER else safe, least, most)
    if fitting is None:
        raise SchemaRefused(place, "is not supported beside these lengths. Say the length in the pattern.")
    return fitting


def _constraints(together: Together) -> tuple[Pattern | None, int, int | None, Place]:
    """Return the pattern of all patterns and formats, the bounds of the length, and a place to name."""
    pattern: Pattern | None = None
    least, most = 0, None
    place: Place = ()
    without: list[str] = []
    for part in together.parts:
        schema = part.schema
        least = max(least, int(schema.get("minLength", 0)))
        if "maxLength" in schema:
            most = int(schema["maxLength"]) if most is None else min(most, int(schema["maxLength"]))
        without += [value for value in schema.get("$without", ()) if isinstance(value, str)]
        if without and "$without" in schema:
            place = place or part.place
        for word in ("pattern", "format"):
            expression = schema.get(word) if word == "pattern" else FORMATS.get(schema.get(word, ""))
            if expression is None:
                continue
            here = (*part.place, word)
            found = read_pattern(expression, here)
            joined = found if pattern is None else patterns.found_in_turn(_safe(pattern), _safe(found))
            if joined is None:
                raise SchemaRefused(here, "is not supported beside another pattern or format. Use one of them.")
            pattern, place = joined, here
    if without:
        others = patterns.all_but(sorted(set(without)))
        joined = others if pattern is None else patterns.found_in_turn(_safe(pattern), others)
        if joined is None:
            raise SchemaRefused(place, "is not supported beside values that are excluded. Use enum.")
        pattern = joined
    return pattern, least, most, place


def _safe(pattern: Pattern) -> Pattern:
    safe = patterns.without_unsafe(pattern)
    return pattern if safe == patterns.NEVER else safe


def read_pattern(expression: str, place: Place, *, is_whole: bool = False) -> Pattern:
    """Return the pattern of an expression that stands at a place; it may be that of a whole text.

    Raises:
        SchemaRefused: it has what cannot be kept.
    """
    try:
        return patterns.read(expression, is_whole=is_whole)
    except PatternRefused as refused:
        raise SchemaRefused(place, f"is not supported: {refused}. Use classes, groups and repetitions.") from None
