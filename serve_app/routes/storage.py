"""What routes over stored things share: the first piece of content, queries, ranges."""

import re
from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request

from serve_app.body import validate_body
from serve_app.errors import RangeNotSatisfiable

Query = TypeVar("Query", bound=BaseModel)

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_NUMBER = re.compile(r"-?\d{1,18}")


async def begin_content(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return content whose first piece has been read, so that a store that fails until then still has a status."""
    first = await anext(content, b"")

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in content:
            yield piece

    return pieces()


def parse_query(request: Request, schema: type[Query]) -> Query:
    """Return the query of a request as its schema has it; parameters that the schema does not know are left out.

    Raises:
        BadRequest: a parameter is of a wrong type or out of range.
    """
    given = {name: value for name, value in request.query_params.items() if name in schema.model_fields}
    numbers = {name for name, field in schema.model_fields.items() if field.annotation is int}
    return validate_body({name: parse_number(v) if name in numbers else v for name, v in given.items()}, schema)


def parse_number(text: str) -> int | str:
    """Return the integer that a text spells, or the text itself for the schema to refuse."""
    return int(text) if _NUMBER.fullmatch(text) else text


def parse_range(header: str | None, num_bytes: int) -> tuple[int, int] | None:
    """Return the span that a Range header asks for, None where all is asked for (RFC 9110; one range at most).

    Raises:
        RangeNotSatisfiable: it begins beyond the end.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        start, stop = max(0, num_bytes - int(match[2])), num_bytes
    else:
        start, stop = int(match[1]), min(num_bytes, int(match[2]) + 1 if match[2] else num_bytes)
        if match[2] and int(match[2]) < start:
            return None
    if start >= stop:
        raise RangeNotSatisfiable(num_bytes)
    return start, stop
