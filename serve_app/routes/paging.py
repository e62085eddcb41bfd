"""The queries of requests, and the pages of lists."""

import re
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from starlette.requests import Request
from typing_extensions import TypedDict

from deployments.state.database import queries
from serve_app.errors.api import BadRequest, invalid_value, shorten
from serve_app.schemas.base import PageQuery, TwoWayQuery
from serve_app.validation.body import validate_body

Item = TypeVar("Item")
Query = TypeVar("Query", bound=BaseModel)

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_BOOLEANS = {"true": True, "false": False}


class Page(TypedDict, Generic[Item]):
    """A part of a list."""

    object: Literal["list"]
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


def parse_query(request: Request, schema: type[Query]) -> Query:
    """Return the query of a request; parameters that the schema does not know are ignored.

    A list is a repeated parameter, with or without "[]" after its name, or has commas between its values. An object is
    a parameter for each of its keys, written `name[key]`.

    Raises:
        BadRequest: a parameter is of a wrong type or out of range.
    """
    value: dict[str, Any] = {}
    for field_name, field in schema.model_fields.items():
        name = field.alias or field_name
        kinds = _kinds_of(field.annotation)
        if list in kinds:
            texts = [*request.query_params.getlist(name), *request.query_params.getlist(f"{name}[]")]
            if texts:
                value[name] = [part for text in texts for part in text.split(",")]
            continue
        if dict in kinds:
            pairs = {key: text for key, text in request.query_params.items() if key.startswith(f"{name}[")}
            if pairs:
                value[name] = {key[len(name) + 1 :].removesuffix("]"): text for key, text in pairs.items()}
            continue
        text = request.query_params.get(name)
        if text is None:
            continue
        if int in kinds:
            value[name] = parse_number(text)
        elif bool in kinds:
            value[name] = _BOOLEANS.get(text.lower(), text)
        else:
            value[name] = text
    return validate_body(value, schema)


def _kinds_of(annotation: Any) -> set[Any]:
    """Return the plain types of an annotation, without its bounds and None."""
    if get_origin(annotation) is Annotated:
        return _kinds_of(get_args(annotation)[0])
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return {kind for part in get_args(annotation) for kind in _kinds_of(part)}
    return {get_origin(annotation) or annotation}


def parse_number(text: str) -> int | str:
    """Return a text as an integer, or the text itself, which the schema then refuses."""
    return int(text) if _NUMBER.fullmatch(text) else text


def list_to_wire(items: Sequence[dict[str, Any]], *, has_more: bool) -> Page[dict[str, Any]]:
    """Return a list object."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def page_of(query: PageQuery) -> queries.Page:
    """Return the page that a query asks for, as stores take it."""
    before = query.before if isinstance(query, TwoWayQuery) else None
    return queries.Page(query.limit, query.is_ascending, query.after, before)


def cut_page(items: Sequence[Item], query: PageQuery, id_of: Callable[[Item], str]) -> tuple[list[Item], bool]:
    """Return the page that a query asks for, and whether there is more; `items` are oldest first.

    Raises:
        BadRequest: `query.after` is not among the items.
    """
    rest = list(items) if query.is_ascending else list(reversed(items))
    if query.after is not None:
        places = [index for index, item in enumerate(rest) if id_of(item) == query.after]
        if not places:
            raise unknown_after(query.after)
        rest = rest[places[0] + 1 :]
    return rest[: query.limit], len(rest) > query.limit


def unknown_after(after: str, param: str = "after") -> BadRequest:
    """Return the error for a page after, or before, an unknown item."""
    return invalid_value(f"Invalid '{param}': no item with id '{shorten(after)}'.", param)


def unknown_cursor(query: TwoWayQuery) -> BadRequest:
    """Return the error for a page after or before an unknown item."""
    return unknown_after(query.after) if query.after else unknown_after(query.before or "", "before")
