"""A form beside tools: an answer keeps the form, or is calls of the tools.

An engine follows one grammar. vLLM makes one of the form or one of the calls; here one is made of both.
"""

import json
from typing import Any

_ANY_OBJECT = {"type": "json_schema", "json_schema": {"type": "object"}}


def has_either(body: dict[str, Any]) -> bool:
    """Return whether a body asks for a form of the answer, and leaves it to the model whether it calls a tool."""
    return bool(body.get("tools")) and body.get("tool_choice") in (None, "auto") and _form_of(body) is not None


def calls_or_answer(body: dict[str, Any], calls: str) -> str:
    """Return the structural tag of an answer in the body's form, or of calls, given by their own structural tag."""
    return json.dumps(
        {"type": "structural_tag", "format": {"type": "or", "elements": [_form_of(body), json.loads(calls)["format"]]}}
    )


def on_lines(calls: str) -> str:
    """Return a structural tag of calls in which a line may end after each one in tags, as models write several."""
    tag = json.loads(calls)
    pending: list[Any] = [tag["format"]]
    while pending:
        node = pending.pop()
        if node["type"] == "tags_with_separator" and not (node["separator"] or node.get("stop_after_first")):
            for one in node["tags"]:
                if isinstance(one["end"], str) and one["end"].endswith("</tool_call>"):
                    one["end"] = [one["end"], one["end"] + "\n"]
        pending += [*node.get("elements", ()), *([node["content"]] if node.get("content") else ())]
    return json.dumps(tag)


def answer_of(tag: str) -> str:
    """Return the part of what `calls_or_answer` returned that is no call, as a tag of its own."""
    form, _ = json.loads(tag)["format"]["elements"]
    return json.dumps({"type": "structural_tag", "format": form})


def _form_of(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the form of the answer as a part of a structural tag, None where there is none or it is a tag itself."""
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_object":
        return _ANY_OBJECT
    if wanted.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": wanted["json_schema"].get("schema", {})}
    form = body.get("structured_outputs") or {}
    if form.get("json_object"):
        return _ANY_OBJECT
    if (schema := form.get("json")) is not None:
        return {"type": "json_schema", "json_schema": json.loads(schema) if isinstance(schema, str) else schema}
    if (pattern := form.get("regex")) is not None:
        return {"type": "regex", "pattern": pattern}
    if (grammar := form.get("grammar")) is not None:
        return {"type": "grammar", "grammar": grammar}
    if (choices := form.get("choice")) is not None:
        return {"type": "or", "elements": [{"type": "const_string", "value": choice} for choice in choices]}
    return None
