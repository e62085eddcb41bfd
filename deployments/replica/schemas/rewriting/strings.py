"""Strings of a length, a pattern or a format.

The expression of a format accepts no text outside the format, but not every text of it: international formats get the
texts of their ASCII counterparts. Unknown formats are ignored, as JSON Schema requires.
"""

from collections.abc import Iterable
from typing import Any

from deployments.replica.schemas.rewriting import patterns
from deployments.replica.schemas.rewriting.expressions import any_text, in_json, read
from deployments.replica.schemas.rewriting.gathering import Conjunction
from deployments.replica.schemas.rewriting.parts import Place, SchemaRefused
from deployments.replica.schemas.rewriting.patterns import ANYTHING, Pattern

_DATE = (
    r"(?:[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8])))"
)
_TIME = r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]))"
_LABEL = r"[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}"
_TOP = r"[A-Za-z][A-Za-z0-9]{0,19}(?:-[A-Za-z0-9]{1,20}){0,2}"
_HOST = rf"(?:(?:{_LABEL}\.){{0,3}}{_TOP})"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_BYTE}(?:\.{_BYTE}){{3}})"
_GROUP = r"[0-9A-Fa-f]{1,4}"
_IPV6 = (
    rf"(?:(?:{_GROUP}:){{7}}{_GROUP}|"
    + "|".join(rf"(?:{_GROUP}:){{{left}}}(?::{_GROUP}){{1,{7 - left}}}" for left in range(1, 7))
    + rf"|:(?::{_GROUP}){{1,7}}|(?:{_GROUP}:){{1,7}}:|::)"
)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_EMAIL = rf"(?:{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOST})"
_CHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_REST = rf"(?:/(?:{_CHAR}+(?:/{_CHAR}*)*)?)?(?:\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?"
_URI = rf"(?:[A-Za-z][A-Za-z0-9+.-]*:(?://{_HOST}(?::[0-9]{{1,4}})?)?{_REST})"
_URI_REFERENCE = rf"(?:{_URI}|(?:[A-Za-z0-9._~-]+)?{_REST})"
_TIME_SPAN = r"T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS = r"(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_POINTER = r"(?:/(?:[^/~]|~[01])*)*"

_BARE = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_DAYS}(?:{_TIME_SPAN})?|{_TIME_SPAN}|[0-9]+W)",
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOST,
    "idn-hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "iri": _URI,
    "uri-reference": _URI_REFERENCE,
    "iri-reference": _URI_REFERENCE,
    "uri-template": r"(?:[A-Za-z0-9._~:/?#-]|\{[A-Za-z0-9_]+(?:,[A-Za-z0-9_]+)*\})*",
    "uuid": r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    "regex": r"[A-Za-z0-9_ ,:;@/-]*",
}
FORMATS = {name: f"^(?:{expression})$" for name, expression in _BARE.items()}


def string_form(conjunction: Conjunction, *, has_escapes: bool) -> dict[str, Any] | None:
    """Return the schema of the strings that fit all parts, or raise SchemaRefused; None if there are none.

    Without `has_escapes` the strings have no escapes of JSON.
    """
    pattern, least, most, place = _constraints(conjunction)
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


def names_pattern(conjunction: Conjunction) -> Pattern | None:
    """Return the pattern of the property names that fit all parts, or raise SchemaRefused; None if any name fits."""
    pattern, least, most, place = _constraints(conjunction)
    if (least, most) != (0, None):
        if most is not None and least > most:
            return patterns.NEVER
        pattern = _fitted(ANYTHING if pattern is None else pattern, least, most, place)
    return pattern if pattern is None else patterns.without_unsafe(pattern)


def _of_pattern(expression: str) -> dict[str, Any]:
    return {"type": "string", "pattern": expression}


def _fitted(pattern: Pattern, least: int, most: int | None, place: Place) -> Pattern:
    fitting = patterns.fitted(_safe(pattern), least, most)
    if fitting is None:
        raise SchemaRefused(place, "is not supported beside these lengths. Say the length in the pattern.")
    return fitting


def _constraints(conjunction: Conjunction) -> tuple[Pattern | None, int, int | None, Place]:
    """Return one pattern for all patterns and formats, the bounds of the length, and the place for an error."""
    least, most = conjunction.bounds("Length")
    without = set(_texts(conjunction.without))
    place: Place = next((part.place for part in conjunction.parts if _texts(part.schema.get("$without", ()))), ())
    pattern: Pattern | None = None
    for part in conjunction.parts:
        for word, expression in (
            ("pattern", part.schema.get("pattern")),
            ("format", FORMATS.get(part.schema.get("format", ""))),
        ):
            if expression is None:
                continue
            here = (*part.place, word)
            found = read(expression, here)
            joined = found if pattern is None else patterns.found_in_turn(_safe(pattern), _safe(found))
            if joined is None:
                raise SchemaRefused(here, "is not supported beside another pattern or format. Use one of them.")
            pattern, place = joined, here
    if without:
        others = patterns.all_but(sorted(without))
        joined = others if pattern is None else patterns.found_in_turn(_safe(pattern), others)
        if joined is None:
            raise SchemaRefused(place, "is not supported beside values that are excluded. Use enum.")
        pattern = joined
    return pattern, least, most, place


def _safe(pattern: Pattern) -> Pattern:
    """Return the part of a pattern that JSON need not escape; all of it if there is no such part."""
    safe = patterns.without_unsafe(pattern)
    return pattern if safe == patterns.NEVER else safe


def _texts(values: Iterable[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]
