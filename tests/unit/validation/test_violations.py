"""Nothing that pydantic can find in the wire models goes without words of our own."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from serve_app.schemas import chat, completions, embeddings
from serve_app.validation import violations

# What each part of a pydantic core schema may find wrong in JSON that was parsed already.
FINDINGS: dict[str, dict[str | None, list[str]]] = {
    "model": {None: ["model_type"]},
    "model-fields": {None: ["missing", "extra_forbidden", "model_attributes_type"]},
    "model-field": {},
    "str": {
        None: ["string_type"],
        "min_length": ["string_too_short"],
        "max_length": ["string_too_long"],
        "pattern": ["string_pattern_mismatch"],
    },
    "int": {None: ["int_type"], "ge": ["greater_than_equal"], "le": ["less_than_equal"]},
    "float": {None: ["float_type"], "ge": ["greater_than_equal"], "le": ["less_than_equal"]},
    "bool": {None: ["bool_type"]},
    "list": {None: ["list_type"], "min_length": ["too_short"], "max_length": ["too_long"]},
    "dict": {None: ["dict_type"]},
    "literal": {None: ["literal_error"]},
    "tagged-union": {None: ["union_tag_invalid", "union_tag_not_found", "model_attributes_type"]},
    "union": {},
    "nullable": {},
    "default": {},
    "any": {},
    "definitions": {},
    "definition-ref": {},
    "function-after": {},
    "function-before": {},
}
BOUNDS = {"ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern"}


def parts_of(schema: Any):
    """Yield every part of a core schema, with its bounds."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if isinstance(node.get("type"), str):
                yield node["type"], {key for key, value in node.items() if not isinstance(value, dict | list)}
            skipped = ("metadata", "config", "serialization", "function")
            pending.extend(value for key, value in node.items() if key not in skipped)
        elif isinstance(node, list | tuple):
            pending.extend(node)


@pytest.mark.parametrize("model", [chat.ChatRequest, completions.CompletionRequest, embeddings.EmbeddingRequest])
def test_every_finding_of_a_wire_model_has_a_translation(model: type[BaseModel]):
    seen = set()
    for kind, keys in parts_of(model.__pydantic_core_schema__):
        assert kind in FINDINGS, f"say in FINDINGS what a {kind!r} can find"
        found = FINDINGS[kind]
        for bound in keys & BOUNDS:
            assert bound in found, f"say in FINDINGS what {bound!r} of a {kind!r} can find"
        seen |= {name for bound, names in found.items() if bound is None or bound in keys for name in names}
    assert "missing" in seen
    assert seen <= set(violations._TRANSLATORS)


class Settings(BaseModel):
    """A model that is not one of the wire's: lax about types, with bounds and validators of other kinds."""

    number: complex = 0j
    ratio: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    count: int = 0
    flag: bool = False
    names: tuple[str, ...] = ()

    @field_validator("names")
    @classmethod
    def _check_names(cls, names):
        if "x" in names:
            raise ValueError("'x' is taken")
        return names

    @model_validator(mode="after")
    def _check_together(self):
        if self.flag and self.count:
            raise ValueError("one of both")
        return self


@pytest.mark.parametrize(
    ("body", "message", "param", "code"),
    [
        ({"number": "x"}, "Invalid value for 'number'.", "number", "invalid_value"),
        ({"names": ["x"]}, "Invalid value for 'names': 'x' is taken.", "names", "invalid_value"),
        ({"flag": True, "count": 1}, "Invalid request: one of both.", None, "invalid_value"),
        ({"ratio": 0}, "Invalid 'ratio': decimal below minimum value. Expected a value > 0, but got 0 instead.",
         "ratio", "decimal_below_min_value"),
        ({"ratio": 1.5}, "Invalid 'ratio': decimal above maximum value. Expected a value < 1, but got 1.5 instead.",
         "ratio", "decimal_above_max_value"),
        ({"ratio": "x"}, "Invalid type for 'ratio': expected a decimal, but got a string instead.", "ratio",
         "invalid_type"),
        ({"count": "x"}, "Invalid type for 'count': expected an integer, but got a string instead.", "count",
         "invalid_type"),
        ({"count": 1.5}, "Invalid type for 'count': expected an integer, but got a decimal number instead.", "count",
         "invalid_type"),
        ({"flag": "x"}, "Invalid type for 'flag': expected a boolean, but got a string instead.", "flag",
         "invalid_type"),
        ({"names": "x"}, "Invalid type for 'names': expected an array, but got a string instead.", "names",
         "invalid_type"),
    ],
)  # fmt: skip
def test_finding_of_any_other_model_names_the_field(body, message, param, code):
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(body)
    error = violations.translate_violation(caught.value, body)
    assert error.to_wire()["error"] == {
        "message": message,
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }


def test_trimmed_body_keeps_lists_and_the_first_keys():
    body = {"a": [{"b": 1}, [2]], **{str(i): i for i in range(1000)}}
    trimmed = violations.trim(body)
    assert trimmed["a"] == [{"b": 1}, [2]]
    assert len(trimmed) == 256
