"""Lists that are read in pages: the parameters that ask for a part, and the object that holds it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from serve_app.errors import BadRequest, shorten

MAX_LIMIT = 100
DEFAULT_LIMIT = 20
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which part of a list is asked for."""

    limit: int
    is_ascending: bool
    after: str | None


def page_query(request: Request) -> PageQuery:
    """Return what a request asks of a list, the newest first where it does not say.

    Raises:
        BadRequest: a parameter is not what it must be.
    """
    limit = integer_of(request, "limit", DEFAULT_LIMIT)
    if not 1 <= limit <= MAX_LIMIT:
        side = "below minimum" if limit < 1 else "above maximum"
        bound = ">= 1" if limit < 1 else f"<= {MAX_LIMIT}"
        raise BadRequest(
            f"Invalid 'limit': integer {side} value. Expected a value {bound}, but got {limit} instead.",
            param="limit",
            code="integer_below_min_value" if limit < 1 else "integer_above_max_value",
        )
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest(
            f"Invalid value: '{shorten(order)}'. Supported values are: 'asc' and 'desc'.",
            param="order",
            code="invalid_value",
        )
    return PageQuery(limit, order == "asc", request.query_params.get("after") or None)


def integer_of(request: Request, name: str, default: int) -> int:
    """Return a parameter that is a whole number.

    Raises:
        BadRequest: it is something else.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise BadRequest(
            f"Invalid type for '{name}': expected an integer, but got '{shorten(text)}' instead.",
            param=name,
            code="invalid_type",
        )
    return int(text)


def boolean_of(request: Request, name: str) -> bool:
    """Return a parameter that is true or false, false where it is left out.

    Raises:
        BadRequest: it is something else.
    """
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false"):
        raise BadRequest(
            f"Invalid value: '{shorten(text)}'. Supported values are: 'true' and 'false'.",
            param=name,
            code="invalid_value",
        )
    return text == "true"


def list_to_wire(items: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a list object."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def unknown_after(after: str) -> BadRequest:
    """Return the refusal of a page that begins after something that is not there."""
    return BadRequest(f"Invalid 'after': no item with id '{shorten(after)}'.", param="after", code="invalid_value")
