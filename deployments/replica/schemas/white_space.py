"""Keeps models from filling an answer with white space, where a structural tag would let them.

vLLM's setting `disable_any_whitespace` holds JSON schemas to the separators ", " and ": ", but not the schemas within
structural tags, which forced and strict calls are made of. There each place gets one character of white space at most:
enough for every common way of writing JSON.
"""

import json
from typing import Any


def bound_white_space(tag: str) -> str:
    """Return a structural tag, a JSON text, whose JSON has at most one character of white space in each place."""
    parsed = json.loads(tag)
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
