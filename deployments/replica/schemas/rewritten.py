"""Rewrites the schemas that a form of an answer holds."""

import json
from collections.abc import Iterator
from typing import Any

from deployments.replica.schemas.rewriting.refusal import Place, SchemaRefused
from deployments.replica.schemas.rewriting.rewriter import rewrite
from deployments.replica.schemas.rewriting.strings import read_pattern
from deployments.replica.schemas.rewriting.written import in_text, may_be_slow
from deployments.replica.schemas.unusable import Unusable

_OPEN = {"type": "object"}
MOST_LEVELS = 64
"""As many as vLLM takes."""
_HOLDS_SCHEMA = {"json_schema", "schema"}


def rewritten_form(form: str, text: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of a form with its schemas and regular expressions rewritten, and those schemas.

    Raises:
        Unusable: one has what cannot be kept.
        ValueError: the text is not what the form has.
    """
    if form == "json":
        schema = _rewritten(json.loads(text), 0)
        return json.dumps(schema), [schema]
    if form == "calls":
        calls = [_of_call(call, position) for position, call in enumerate(json.loads(text))]
        return json.dumps(calls), calls
    if form == "structural_tag":
        tag = json.loads(text)
        schemas = [_replaced(holder, word, place) for holder, word, place in _schemas_within(tag, ())]
        return json.dumps(tag), schemas
    return (_expression(text, ()) if form == "regex" else text), []


def _rewritten(schema: Any, position: int, *, within: Place = (), **options: Any) -> dict[str, Any]:
    try:
        rewritten = rewrite(schema, **options)
        if _is_deeper(rewritten, MOST_LEVELS):
            raise SchemaRefused((), f"nests objects and arrays deeper than {MOST_LEVELS} levels.")
        return rewritten
    except SchemaRefused as refused:
        raise Unusable(position, SchemaRefused(within + refused.place, refused.why).sentence) from None


def _is_deeper(node: Any, levels: int) -> bool:
    """Return whether objects and arrays are nested more than `levels` deep."""
    if not isinstance(node, dict | list):
        return False
    inner = node.values() if isinstance(node, dict) else node
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)


def _of_call(call: dict[str, Any], position: int) -> dict[str, Any]:
    """Return the schema of a call's arguments; where it need not be kept and cannot be, that of any object."""
    try:
        return _rewritten(call["schema"], position, prefix=f"t{position}_", is_call=True)
    except Unusable:
        if call["must_fit"]:
            raise
        return _OPEN


def _schemas_within(node: Any, place: Place) -> Iterator[tuple[dict[str, Any], str, Place]]:
    """Yield what holds a schema in a structural tag, the field that has it, and where it stands.

    Regular expressions are rewritten on the way.
    """
    if isinstance(node, list):
        for index, one in enumerate(node):
            yield from _schemas_within(one, (*place, index))
    elif isinstance(node, dict):
        if node.get("type") == "regex" and isinstance(node.get("pattern"), str):
            node["pattern"] = _expression(node["pattern"], (*place, "pattern"))
        for word, value in node.items():
            if word in _HOLDS_SCHEMA and isinstance(value, dict):
                yield node, word, (*place, word)
            else:
                yield from _schemas_within(value, (*place, word))


def _expression(text: str, place: Place) -> str:
    """Return a regular expression of the whole of an answer, or of a part of it, as a grammar compiler reads it."""
    try:
        written = in_text(read_pattern(text, place, is_whole=True))
        if written is None:
            raise SchemaRefused(place, "leaves no text that could be written.")
    except SchemaRefused as refused:
        raise Unusable(0, refused.sentence) from None
    return written


def _replaced(holder: dict[str, Any], word: str, place: Place) -> dict[str, Any]:
    schema = holder[word] = _rewritten(holder[word], 0, within=place, is_call=holder.get("style", "json") != "json")
    return schema


def expressions_of(schemas: list[dict[str, Any]]) -> list[str]:
    """Return the patterns of rewritten schemas that may be slow to follow, each once."""
    found: dict[str, None] = {}
    pending: list[Any] = list(schemas)
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                found[node["pattern"]] = None
            if isinstance(node.get("patternProperties"), dict):
                found |= dict.fromkeys(node["patternProperties"])
            pending.extend(node.values())
    return [expression for expression in found if expression.startswith("^") and may_be_slow(expression)]
