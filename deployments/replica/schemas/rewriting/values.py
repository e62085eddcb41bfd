"""Which values fit a part, judged by the library `jsonschema`."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
from referencing import Registry

from deployments.replica.schemas.rewriting.parts import Part

DRAFT_7, DRAFT_2020 = "7", "2020-12"
_VALIDATORS = {DRAFT_7: jsonschema.Draft7Validator, DRAFT_2020: jsonschema.Draft202012Validator}


class Validator:
    """Validates values against parts of a document, in each draft that the document may be written in."""

    def __init__(self, schema: Any, drafts: list[str]) -> None:
        # Without this registry it would fetch references from the network.
        self._validators = [_VALIDATORS[draft](schema, registry=Registry()) for draft in drafts]

    def fitting(self, part: Part, values: list[Any], *, but_for: str = "") -> list[Any]:
        """Return the values that fit in every draft that can tell; the keyword `but_for` is ignored."""
        schema = _plain(part)
        if but_for and isinstance(schema, dict):
            schema = {word: value for word, value in schema.items() if word != but_for}
        if schema in ({}, True):
            return values
        validators = [one.evolve(schema=schema) for one in self._validators]
        found = [(value, {_is_valid(one, value) for one in validators}) for value in values]
        return [value for value, verdicts in found if True in verdicts and False not in verdicts]

    def takes(self, part: Part, value: Any) -> bool:
        """Return whether a value fits in every draft."""
        return bool(self.fitting(part, [value]))

    def refuses(self, part: Part, value: Any) -> bool:
        """Return whether a value fits in no draft."""
        return all(_is_valid(one.evolve(schema=_plain(part)), value) is False for one in self._validators)


def _is_valid(validator: Any, value: Any) -> bool | None:
    """Return whether a value is valid; None if a reference leads nowhere, or a pattern is not one of Python's."""
    try:
        return bool(validator.is_valid(value))
    except Exception:
        return None


def _plain(part: Part) -> Any:
    return _plain_schema(part.schema) if part.is_made else part.schema


def _plain_schema(schema: Any) -> Any:
    if isinstance(schema, Part):
        return _plain(schema)
    if isinstance(schema, list):
        return [_plain_schema(one) for one in schema]
    if isinstance(schema, dict):
        if "$without" in schema:
            return {"not": {"enum": schema["$without"]}}
        return {word: _plain_schema(one) for word, one in schema.items()}
    return schema


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON Schema: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return (type(one) in (int, float) and type(other) in (int, float) and one == other) or (
        type(one) is type(other) and one == other
    )


def type_of(value: Any) -> str:
    """Return the type of a value, named as in `type`; integers are numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
