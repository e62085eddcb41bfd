"""Rewrites the schemas and regular expressions of an answer's form into ones that grammars keep."""

import json
from collections.abc import Iterator
from typing import Any

from deployments.replica.schemas.rewriting.expressions import in_text, may_be_slow, read
from deployments.replica.schemas.rewriting.parts import Place, SchemaRefused
from deployments.replica.schemas.rewriting.rewriter import rewrite

MOST_LEVELS = 64
"""vLLM's limit."""
_OPEN = {"type": "object"}
_HOLDS_SCHEMA = {"json_schema", "schema"}


def rewritten_form(form: str, text: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the rewritten text of a form, and the rewritten schemas in it.

    Raises:
        SchemaRefused: a schema or an expression cannot be kept.
        ValueError: the text is not of this form.
    """
    if form == "json":
        schema = _rewritten(json.loads(text))
        return json.dumps(schema), [schema]
    if form == "calls":
        calls = [_of_call(call, position) for position, call in enumerate(json.loads(text))]
        return json.dumps(calls), calls
    if form == "regex":
        return _expression(text, ()), []
    if form != "structural_tag":
        return text, []
    tag = json.loads(text)
    schemas = []
    for holder, word, place in _schemas_and_expressions(tag, ()):
        if word == "pattern":
            holder[word] = _expression(holder[word], place)
        else:
            holder[word] = _rewritten(holder[word], within=place, is_call=holder.get("style", "json") != "json")
            schemas.append(holder[word])
    return json.dumps(tag), schemas


def _rewritten(schema: Any, position: int = 0, *, within: Place = (), **options: Any) -> dict[str, Any]:
    try:
        rewritten = rewrite(schema, **options)
        if _is_deeper(rewritten, MOST_LEVELS):
            raise SchemaRefused((), f"nests objects and arrays deeper than {MOST_LEVELS} levels.")
    except SchemaRefused as refused:
        raise SchemaRefused(within + refused.place, refused.why, position) from None
    return rewritten


def _is_deeper(node: Any, levels: int) -> bool:
    if not isinstance(node, dict | list):
        return False
    inner = node.values() if isinstance(node, dict) else node
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)


def _of_call(call: dict[str, Any], position: int) -> dict[str, Any]:
    """Return the schema of a call's arguments; the schema of any object where that cannot be kept, and need not."""
    try:
        return _rewritten(call["schema"], position, prefix=f"t{position}_", is_call=True)
    except SchemaRefused:
        if call["must_fit"]:
            raise
        return _OPEN


def _schemas_and_expressions(node: Any, place: Place) -> Iterator[tuple[dict[str, Any], str, Place]]:
    """Yield each schema and regular expression in a structural tag: the object that holds it, its key, its place."""
    if isinstance(node, list):
        for index, one in enumerate(node):
            yield from _schemas_and_expressions(one, (*place, index))
    elif isinstance(node, dict):
        for word, value in node.items():
            is_schema = word in _HOLDS_SCHEMA and isinstance(value, dict)
            is_expression = word == "pattern" and node.get("type") == "regex" and isinstance(value, str)
            if is_schema or is_expression:
                yield node, word, (*place, word)
            else:
                yield from _schemas_and_expressions(value, (*place, word))


def _expression(text: str, place: Place) -> str:
    """Return a regular expression of a whole answer, or a part of it, as a grammar compiler reads it."""
    written = in_text(read(text, place, is_whole=True))
    if written is None:
        raise SchemaRefused(place, "leaves no text that could be written.")
    return written


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
