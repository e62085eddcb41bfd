"""Which parameter of a request was at fault, for the request log: in names of the service alone.

A client may make up names of fields, and write content into them.
"""

import re
from collections.abc import Iterator
from functools import cache

from pydantic import BaseModel

_PART = re.compile(r"\[\d+\]|\.?([^.\[\]]+)")


def known_part(param: str | None) -> str | None:
    """Return the path of a parameter up to its first unknown name; None if nothing of it is known."""
    end = 0
    for part in _PART.finditer(param or ""):
        if part[1] is not None and part[1] not in _known_names():
            break
        end = part.end()
    return (param or "")[:end] or None


@cache
def _known_names() -> frozenset[str]:
    """Return the names of the fields of all models of bodies and queries."""
    return frozenset(_names_in(BaseModel))


def _names_in(model: type[BaseModel]) -> Iterator[str]:
    for kind in model.__subclasses__():
        for name, field in kind.model_fields.items():
            yield field.alias or name
        yield from _names_in(kind)
