"""Schemas of the OpenAPI document as rows that a page can show, with the fields of objects within them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Json = Mapping[str, Any]

_UNIONS = ("anyOf", "oneOf")


class Field(NamedTuple):
    """A row: a field with its type in words. `objects` are the objects that the field may hold."""

    name: str
    kind: str
    description: str
    default: str
    is_required: bool
    is_engine_option: bool
    objects: tuple["ObjectType", ...]


class ObjectType(NamedTuple):
    """An object with its fields."""

    name: str
    description: str
    fields: tuple[Field, ...]


class FieldReader:
    """Reads schemas of one document. Objects are shown `depth` levels deep, and never within themselves."""

    def __init__(self, schemas: Json, depth: int = 3) -> None:
        self._schemas = schemas
        self._depth = depth

    def objects_of(self, schema: Json, within: frozenset[str] = frozenset()) -> tuple[ObjectType, ...]:
        """Return the objects that a value of the schema may be or contain, each by its name."""
        found = []
        for name, about in _objects_in(schema, self._schemas):
            if name not in within and len(within) < self._depth:
                inner = within | {name}
                found.append(ObjectType(name, about.get("description", ""), self._fields(about, inner)))
        return tuple(found)

    def field_of(self, name: str, about: Json, *, is_required: bool, within: frozenset[str] = frozenset()) -> Field:
        """Return a field or a parameter."""
        objects = self.objects_of(about, within)
        description = about.get("description") or (objects[0].description if len(objects) == 1 else "")
        default = about.get("default")
        return Field(
            name=name,
            kind=self._kind_of(about),
            description=description,
            default="" if default is None or is_required else json.dumps(default),
            is_required=is_required,
            is_engine_option=about.get("x-vllm", False),
            objects=objects,
        )

    def _fields(self, about: Json, within: frozenset[str]) -> tuple[Field, ...]:
        required = about.get("required", ())
        return tuple(
            self.field_of(name, field, is_required=name in required, within=within)
            for name, field in about.get("properties", {}).items()
        )

    def _kind_of(self, about: Json) -> str:
        """Return a type and its bounds in words."""
        for union in _UNIONS:
            if union in about:
                kinds = (self._kind_of(kind) for kind in about[union])
                return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
        if "$ref" in about:
            return self._kind_of(self._schemas[_name_of(about)])
        if "enum" in about or "const" in about:
            return " or ".join(f"`{json.dumps(value)}`" for value in about.get("enum", [about.get("const")]))
        if about.get("type") == "array":
            inner = self._kind_of(about.get("items", {}))
            return f"array of {inner}" + _bounds(about, "minItems", "maxItems")
        if about.get("format") == "binary":
            return "file"
        return str(about.get("type", "any")) + _bounds(about, "minimum", "maximum")


def _bounds(about: Json, low: str, high: str) -> str:
    least, most = about.get(low), about.get(high)
    if most is not None and abs(most) < 10**9:
        return f", at most {most:,}" if least is None else f", {least:,} to {most:,}"
    return f", at least {least:,}" if least is not None and abs(least) < 10**9 else ""


def _objects_in(schema: Json, schemas: Json) -> Iterator[tuple[str, Json]]:
    """Yield the objects in a schema, not those within them: through references, unions and arrays."""
    if "$ref" in schema:
        target = schemas[_name_of(schema)]
        if target.get("properties"):
            yield _name_of(schema), target
        else:
            yield from _objects_in(target, schemas)
    elif schema.get("properties"):
        yield "", schema
    branches: Iterable[Json] = [branch for union in _UNIONS for branch in schema.get(union, ())]
    for branch in (*branches, *([schema["items"]] if isinstance(schema.get("items"), Mapping) else ())):
        yield from _objects_in(branch, schemas)


def _name_of(reference: Json) -> str:
    return str(reference["$ref"]).rpartition("/")[2]
