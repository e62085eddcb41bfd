"""Parses JSON from strangers within bounds that hold before any of it is built.

Depth and the number of containers and members are counted on the bytes first, in linear time and without
recursion: a parser that trusts its input can be made to overflow its stack or to use a hundred times the
memory of the text. Knows nothing of what the JSON should say.
"""

from array import array
from itertools import accumulate
from typing import Any

import orjson

MAX_DEPTH = 64
MAX_CONTAINERS = 100_000
MAX_MEMBERS = 100_000
MAX_STRINGS = 500_000
_MAX_STRINGS_WITH_BRACKETS = 100_000

_STRUCTURE = b'"[]{}:'
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
# A signed byte for each bracket: one level down, one level up.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


class JsonRefused(ValueError):
    """The text is not JSON, or not within bounds; the message is a sentence fit for the caller."""


def parse_json(raw: bytes) -> Any:
    """Return the value of a JSON text; of duplicate keys the last counts.

    Raises:
        JsonRefused: the text is empty, not UTF-8, not JSON as RFC 8259 has it (NaN, lone surrogates, numbers
            beyond a double, a byte order mark), deeper than `MAX_DEPTH` or has too many parts.
    """
    check_structure(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise JsonRefused(_reason(raw, error)) from None


def check_structure(raw: bytes) -> None:
    """Check that the text is within the bounds on depth and number of parts; its syntax is not checked.

    Exact up to the first syntax error, and a parser stops there.

    Raises:
        JsonRefused: it is not.
    """
    openers = raw.count(b"[") + raw.count(b"{")
    if openers <= MAX_DEPTH and (len(raw) < MAX_MEMBERS or raw.count(b'"') <= MAX_MEMBERS):
        return
    # Escapes go first, pairs of backslashes before escaped quotes, so that every quote left is a delimiter.
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    structure = unescaped.translate(None, _NOT_STRUCTURE)
    num_quotes = structure.count(b'"')
    # Two quotes side by side have nothing of interest in between, whether they end a string or part two.
    structure = structure.replace(b'""', b"")
    if num_quotes > 2 * MAX_STRINGS or structure.count(b'"') > 2 * _MAX_STRINGS_WITH_BRACKETS:
        raise JsonRefused("It has too many strings.")
    outside = b"".join(structure.split(b'"')[::2])
    brackets = outside.translate(_STEPS, b":")
    if len(brackets) > 2 * MAX_CONTAINERS or len(outside) - len(brackets) > MAX_MEMBERS:
        raise JsonRefused("It has too many objects, arrays or keys.")
    if max(accumulate(array("b", brackets)), default=0) > MAX_DEPTH:
        raise JsonRefused(f"It is nested deeper than {MAX_DEPTH} levels.")


def is_json_object(text: str) -> bool:
    """Return whether a string holds a JSON object, within the same bounds as `parse_json`."""
    try:
        return isinstance(parse_json(text.encode()), dict)
    except (JsonRefused, UnicodeEncodeError):
        return False


def _reason(raw: bytes, error: orjson.JSONDecodeError) -> str:
    if not raw or raw.isspace():
        return "It is empty."
    if raw.startswith(b"\xef\xbb\xbf"):
        return "It starts with a byte order mark."
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "It is not valid UTF-8."
    return f"It is not valid JSON (line {error.lineno}, column {error.colno})."
