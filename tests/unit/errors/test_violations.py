"""Nothing that pydantic can find in the wire models goes without words of our own."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from serve_app import violations
from serve_app.schemas import chat, completions, embeddings

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


class Odd(BaseModel):
    number: complex


def test_finding_without_a_translation_still_names_the_field():
    with pytest.raises(ValidationError) as caught:
        Odd.model_validate({"number": "x"})
    error = violations.translate_violation(caught.value, {"number": "x"})
    assert error.to_wire()["error"] == {
        "message": "Invalid value for 'number'.",
        "type": "invalid_request_error",
        "param": "number",
        "code": "invalid_value",
    }


def test_trimmed_body_keeps_lists_and_the_first_keys():
    body = {"a": [{"b": 1}, [2]], **{str(i): i for i in range(1000)}}
    trimmed = violations.trim(body)
    assert trimmed["a"] == [{"b": 1}, [2]]
    assert len(trimmed) == 256
