"""Parses untrusted JSON within bounds, and a body into a value of its schema.

Depth and the number of objects, keys and values are counted on the bytes first, in linear time and without recursion:
hostile JSON could overflow a parser's stack, or take a hundred times its size in memory. HTTP routes parse bytes; batch
lines validate objects that are parsed already.
"""

import asyncio
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from serve_app.errors.api import BadRequest, UnparsableBody
from serve_app.validation.violations import has_too_many_findings, translate_violation, trim

MAX_DEPTH = 64
MAX_CONTAINERS = 100_000
MAX_MEMBERS = 100_000
MAX_STRINGS = 500_000
MAX_VALUES = 2_000_000
"""A prompt may be a million numbers."""
_MAX_STRINGS_WITH_BRACKETS = 100_000

_STRUCTURE = b'"[]{}:,'
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
# Maps brackets to signed bytes: +1 opens a level, -1 closes one.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


class JsonRefused(ValueError):
    """The text is not JSON, or not within bounds; the message is a sentence for the client."""


def parse_json(raw: bytes) -> Any:
    """Return the value of a JSON text; the last of duplicate keys counts.

    Raises:
        JsonRefused: the text is empty, not UTF-8, not JSON by RFC 8259 (NaN, lone surrogates, numbers
            beyond a double, a byte order mark), deeper than `MAX_DEPTH` or has too many parts.
    """
    check_structure(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise JsonRefused(_reason(raw, error)) from None


def check_structure(raw: bytes) -> None:
    """Check the bounds on depth and number of parts, not the syntax.

    The check is exact up to the first syntax error, where a parser stops.

    Raises:
        JsonRefused: a bound is exceeded.
    """
    openers = raw.count(b"[") + raw.count(b"{")
    has_few_strings = len(raw) < MAX_MEMBERS or raw.count(b'"') <= MAX_MEMBERS
    if openers <= MAX_DEPTH and has_few_strings and (len(raw) < MAX_VALUES or raw.count(b",") < MAX_VALUES):
        return
    # Remove escapes, pairs of backslashes before escaped quotes, so that every quote left is a delimiter.
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    structure = unescaped.translate(None, _NOT_STRUCTURE)
    num_quotes = structure.count(b'"')
    # Adjacent quotes have no structure between them, whether they delimit one string or two.
    structure = structure.replace(b'""', b"")
    if num_quotes > 2 * MAX_STRINGS or structure.count(b'"') > 2 * _MAX_STRINGS_WITH_BRACKETS:
        raise JsonRefused("It has too many strings.")
    outside = b"".join(structure.split(b'"')[::2])
    if outside.count(b",") >= MAX_VALUES:
        raise JsonRefused("It has too many values.")
    brackets = outside.translate(_STEPS, b":,")
    if len(brackets) > 2 * MAX_CONTAINERS or outside.count(b":") > MAX_MEMBERS:
        raise JsonRefused("It has too many objects, arrays or keys.")
    if max(accumulate(array("b", brackets)), default=0) > MAX_DEPTH:
        raise JsonRefused(f"It is nested deeper than {MAX_DEPTH} levels.")


def read_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a string holds, None if it holds none within the bounds of `parse_json`."""
    try:
        value = parse_json(text.encode())
    except (JsonRefused, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None


def is_json_object(text: str) -> bool:
    """Return whether a string holds a JSON object, within the same bounds as `parse_json`."""
    return read_json_object(text) is not None


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


Body = TypeVar("Body", bound=BaseModel)
Read = TypeVar("Read")

_PROMPTS: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "input": ("/v1/responses", (str, list)),
    "messages": ("/v1/chat/completions", list),
    "prompt": ("/v1/completions", (str, list)),
}
"""By the field that only requests to one route have: the route, and the field's types."""

LARGE_BODY_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A body as it was sent: its bytes, and the JSON object that they hold. Who validates it does not change it."""

    raw: bytes
    value: dict[str, Any]


def parse_json_body(raw: bytes, schema: type[Body]) -> Body:
    """Parse the bytes of a body into its schema.

    Raises:
        UnparsableBody: as `parse_json_object` does.
        BadRequest: a field is missing, unknown, of a wrong type or out of range.
    """
    return validate_body(parse_json_object(raw), schema)


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object that the bytes of a body hold. Raises UnparsableBody if they hold none within bounds."""
    try:
        value = parse_json(raw)
    except JsonRefused as refused:
        raise UnparsableBody(str(refused)) from None
    if not isinstance(value, dict):
        raise UnparsableBody("It is not a JSON object.")
    return value


async def parse_body(raw: bytes, schema: type[Body]) -> Body:
    """Return what `parse_json_body` does; a large body is parsed in a thread."""
    return await in_thread_if_large(raw, partial(parse_json_body, schema=schema))


async def in_thread_if_large(raw: bytes, read: Callable[[bytes], Read]) -> Read:
    """Return what `read` makes of the bytes of a body; large ones are read in a thread."""
    return read(raw) if len(raw) <= LARGE_BODY_BYTES else await asyncio.to_thread(read, raw)


def validate_body(value: dict[str, Any], schema: type[Body]) -> Body:
    """Validate a parsed JSON object. Raises BadRequest if a field is missing, unknown, or not valid."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _translate(error, value, schema) from None


def _translate(error: ValidationError, value: dict[str, Any], schema: type[Body]) -> BadRequest:
    own = getattr(schema, "prompt_field", None)
    if own is not None and own not in value:
        for name, (path, kinds) in _PROMPTS.items():
            if name not in schema.model_fields and isinstance(value.get(name), kinds):
                return BadRequest(
                    f"Unknown parameter: '{name}'. This is a request for {path}: send it there, or send '{own}' here.",
                    param=name,
                    code="unknown_parameter",
                )
    if not has_too_many_findings(error):
        return translate_violation(error, value, schema)
    trimmed = trim(value)
    try:
        schema.model_validate(trimmed)
    except ValidationError as shorter:
        return translate_violation(shorter, trimmed, schema)
    return translate_violation(error, value, schema)
