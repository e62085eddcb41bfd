"""Keeps models from filling an answer with white space.

JSON that an answer is held to gets one character of white space at most in each place: enough for every common way of
writing it. A structural tag is the only form in which vLLM hands such a bound to xgrammar.
"""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

MOST = 1
"""Characters in a row."""


def move_tag(fields: dict[str, Any]) -> None:
    """Make a structural tag that is the response format of a body the form of its structured outputs."""
    wanted = fields.get("response_format") or {}
    if wanted.get("type") == "structural_tag":
        del fields["response_format"]
        fields["structured_outputs"] = {"structural_tag": json.dumps(wanted)}


def put_json_in_tag(form: "StructuredOutputsParams", most: int | None) -> None:
    """Ask for the JSON of a form by a structural tag, with `most` characters of white space in a place; None: any.

    Of a schema outside of a tag vLLM refuses words that its grammars keep in forms which `schemas` has rewritten.
    """
    if form.json is not None or form.json_object:
        wanted = {"type": "object"} if form.json is None else form.json
        schema = json.loads(wanted) if isinstance(wanted, str) else wanted
        parsed = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    elif form.structural_tag is not None:
        parsed = json.loads(form.structural_tag)
    else:
        return
    form.json = form.json_object = None
    form.structural_tag = json.dumps(parsed) if most is None else _bounded(parsed, most)


def _bounded(parsed: dict[str, Any], most: int) -> str:
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
                    node["max_whitespace_cnt"] = most
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
