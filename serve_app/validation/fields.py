"""The fields that a schema has at some place in a body, and the one that was meant by an unknown name there."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, RootModel

from serve_app.errors.nearest import LIKELY, closest_to

Location = tuple[int | str, ...]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field's type names."""
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        annotation = annotation.model_fields["root"].annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def meant_by(location: Location, body: Any, schema: type[BaseModel]) -> str | None:
    """Return the field that was probably meant by the unknown one at pydantic's `location`, None if none is close.

    It is one that the object does not have yet, and that is not refused whenever it is set.
    """
    kinds, holder = _follow(location, body, schema)
    known = [
        field.alias or name
        for kind in kinds
        for name, field in kind.model_fields.items()
        if not (isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("refused"))
    ]
    taken = holder if isinstance(holder, dict) else ()
    return closest_to(location[-1], [name for name in known if name not in taken], LIKELY)


def is_tag(current: dict[str, Any], part: str, following: int | str | None) -> bool:
    """Return whether a name in a location is a union branch, although the object has a field of that name."""
    inner = current[part]
    return isinstance(following, str) and following in current and not (isinstance(inner, dict) and following in inner)


def _follow(location: Location, body: Any, schema: type[BaseModel]) -> tuple[list[type[BaseModel]], Any]:
    """Return the models that the object at the end of a location may be of, and the object."""
    kinds, current = [schema], body
    for part, following in pairwise(location):
        if isinstance(part, int):
            if isinstance(current, list) and part < len(current):
                current = current[part]
        elif isinstance(current, dict) and part in current and not is_tag(current, part, following):
            kinds = [
                model
                for kind in kinds
                for name, field in kind.model_fields.items()
                if part in (name, field.alias)
                for model in models_in(field.annotation)
            ]
            current = current[part]
        else:
            kinds = [kind for kind in kinds if _is_branch(kind, part)] or kinds
    return kinds, current


def _is_branch(kind: type[BaseModel], tag: str) -> bool:
    return kind.__name__ == tag or any(tag in _values_of(field.annotation) for field in kind.model_fields.values())


def _values_of(annotation: Any) -> Iterator[Any]:
    """Yield the values of the literals in a type."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    for inner in get_args(annotation):
        yield from _values_of(inner)
