"""What routes over stored things share: the first piece of content, and ranges."""

import re
from collections.abc import AsyncIterator

from serve_app.errors.api import RangeNotSatisfiable

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


async def begin_content(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return content whose first piece has been read, so that a store that fails until then still has a status."""
    first = await anext(content, b"")

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in content:
            yield piece

    return pieces()


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
