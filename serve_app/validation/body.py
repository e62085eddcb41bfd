"""Parses a body into a value of its schema, or raises the error for the client.

HTTP routes parse bytes; batch lines validate objects that are parsed already.
"""

import asyncio
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from serve_app.errors.api import BadRequest, UnparsableBody
from serve_app.validation.json_limits import JsonRefused, parse_json
from serve_app.validation.violations import has_too_many_findings, translate_violation, trim

Body = TypeVar("Body", bound=BaseModel)

_LARGE_BYTES = 1_000_000


def parse_json_body(raw: bytes, schema: type[Body]) -> Body:
    """Parse the bytes of a body into its schema.

    Raises:
        UnparsableBody: the bytes are not a JSON object within bounds.
        BadRequest: a field is missing, unknown, of a wrong type or out of range.
    """
    try:
        value = parse_json(raw)
    except JsonRefused as refused:
        raise UnparsableBody(str(refused)) from None
    if not isinstance(value, dict):
        raise UnparsableBody("It is not a JSON object.")
    return validate_body(value, schema)


async def parse_body(raw: bytes, schema: type[Body]) -> Body:
    """Do as `parse_json_body` does, but a large body in a thread, so that others are answered meanwhile."""
    if len(raw) <= _LARGE_BYTES:
        return parse_json_body(raw, schema)
    return await asyncio.to_thread(parse_json_body, raw, schema)


def validate_body(value: dict[str, Any], schema: type[Body]) -> Body:
    """Validate a parsed JSON object, such as that of a batch line, against its schema.

    Raises:
        BadRequest: a field is missing, unknown, of a wrong type or out of range.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _translate(error, value, schema) from None


def _translate(error: ValidationError, value: dict[str, Any], schema: type[Body]) -> BadRequest:
    if not has_too_many_findings(error):
        return translate_violation(error, value)
    trimmed = trim(value)
    try:
        schema.model_validate(trimmed)
    except ValidationError as shorter:
        return translate_violation(shorter, trimmed)
    return translate_violation(error, value)
