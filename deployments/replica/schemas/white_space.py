"""Keeps models from filling an answer with white space, where a structural tag would let them.

vLLM's setting `disable_any_whitespace` holds JSON schemas to the separators ", " and ": ", but not the schemas within
structural tags, which forced and strict calls are made of. There each place gets one character of white space at most:
enough for every common way of writing JSON.
"""

import json
from typing import Any


def move_tag(fields: dict[str, Any]) -> None:
    """Make a structural tag that is the response format of a body the form of its structured outputs."""
    wanted = fields.get("response_format") or {}
    if wanted.get("type") == "structural_tag":
        del fields["response_format"]
        fields["structured_outputs"] = {"structural_tag": json.dumps(wanted)}


def bound_white_space(tag: str) -> str:
    """Return a structural tag, a JSON text, whose JSON has at most one character of white space in each place."""
    parsed = json.loads(tag)
    if "structures" in parsed:
        parsed = _in_newer_words(parsed)
    pending: list[Any] = [parsed]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            if node.get("type") == "json_schema" and "json_schema" in node and node.get("style", "json") == "json":
                if node.get("max_whitespace_cnt") is None:
                    node["max_whitespace_cnt"] = 1
                continue  # What a schema holds is the client's.
            pending.extend(node.values())
    return json.dumps(parsed)


def _in_newer_words(tag: dict[str, Any]) -> dict[str, Any]:
    """Return a tag of parts and what begins one, which has no place for a bound, as xgrammar's newer kind."""
    tags = [
        {"begin": one["begin"], "content": {"type": "json_schema", "json_schema": one["schema"]}, "end": one["end"]}
        for one in tag["structures"]
    ]
    form = {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}
    return {"type": "structural_tag", "format": form}
