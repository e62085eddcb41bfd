"""Structural tags of xgrammar: the one form of an answer for all that vLLM's other forms cannot express.

- JSON with little white space. An unsure model could fill an answer with white space, so each place gets at most one
  character: enough for every common way of writing JSON. vLLM passes this bound to xgrammar only in a tag.
- A form beside tools: the answer keeps the form, or calls tools. An engine follows one grammar for both.
- Lines between calls, as models write several calls.
- Arguments of a call that keep to a grammar instead of a schema.
"""

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

MOST = 1
"""The most characters of white space in a row."""
_FORMS = ("json", "json_object", "regex", "grammar", "choice")
GRAMMAR = "manta-grammar"
"""The keyword of a schema that stands for a grammar, because vLLM makes the calls' tag from schemas."""


def move_tag(fields: dict[str, Any]) -> None:
    """Move a structural tag from a body's response format to its structured outputs."""
    wanted = fields.get("response_format") or {}
    if wanted.get("type") == "structural_tag":
        del fields["response_format"]
        fields["structured_outputs"] = {"structural_tag": json.dumps(wanted)}


def has_either(body: dict[str, Any]) -> bool:
    """Return whether a body asks for a form of the answer, and lets the model choose to call a tool instead."""
    form = body.get("structured_outputs") or {}
    has_form = (body.get("response_format") or {}).get("type") in ("json_object", "json_schema") or any(
        form.get(name) not in (None, False) for name in _FORMS
    )
    return bool(body.get("tools")) and body.get("tool_choice") in (None, "auto") and has_form


def calls_or_answer(form: "StructuredOutputsParams", calls: str) -> str:
    """Return the structural tag of an answer in a form, or of calls, given by their own structural tag."""
    elements = [_tag_of(form)["format"], json.loads(calls)["format"]]
    return json.dumps({"type": "structural_tag", "format": {"type": "or", "elements": elements}})


def answer_of(tag: str) -> str:
    """Return the tag of the answer alone, from a tag that `calls_or_answer` made."""
    form, _ = json.loads(tag)["format"]["elements"]
    return json.dumps({"type": "structural_tag", "format": form})


def on_lines(calls: str) -> str:
    """Return a structural tag of calls in which a line may end after each call."""
    tag = json.loads(calls)
    for node in _nodes(tag):
        if node.get("type") == "tags_with_separator" and not (node["separator"] or node.get("stop_after_first")):
            for one in node["tags"]:
                if isinstance(one["end"], str) and one["end"].endswith("</tool_call>"):
                    one["end"] = [one["end"], one["end"] + "\n"]
    return json.dumps(tag)


def hold_grammars(form: "StructuredOutputsParams | None", wanted: Collection[str]) -> str | None:
    """Put grammars of arguments into the form of an answer, in place of the schemas that stand for them.

    Returns a grammar of the `wanted` ones that could not be put there, None if all were.
    """
    if form is None:
        return next(iter(wanted), None)
    found: set[str] = set()
    if form.structural_tag is not None:
        tag = json.loads(form.structural_tag)
        for node in _nodes(tag):
            schema = node.get("json_schema")
            if isinstance(schema, dict) and GRAMMAR in schema and node.get("style", "json") == "json":
                node.clear()
                node.update({"type": "grammar", "grammar": schema[GRAMMAR]})
                found.add(schema[GRAMMAR])
        form.structural_tag = json.dumps(tag)
    elif isinstance(form.json, dict) and GRAMMAR in form.json:
        form.grammar, form.json = form.json[GRAMMAR], None
        found.add(form.grammar)
    return next((grammar for grammar in wanted if grammar not in found), None)


def put_json_in_tag(form: "StructuredOutputsParams", most: int | None) -> None:
    """Replace the JSON of a form by a structural tag with `most` characters of white space in a place; None: any.

    Outside a tag vLLM refuses keywords that its grammars keep after `schemas` has rewritten them.
    """
    if form.json is None and not form.json_object and form.structural_tag is None:
        return
    tag = _tag_of(form)
    if most is not None:
        for node in _nodes(tag):
            is_json = node.get("type") == "json_schema" and node.get("style", "json") == "json"
            if is_json and node.get("max_whitespace_cnt") is None:
                node["max_whitespace_cnt"] = most
    form.json = form.json_object = None
    form.structural_tag = json.dumps(tag)


def _tag_of(form: "StructuredOutputsParams") -> dict[str, Any]:
    if form.json is not None or form.json_object:
        schema = {"type": "object"} if form.json is None else form.json
        schema = json.loads(schema) if isinstance(schema, str) else schema
        return {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    if form.structural_tag is not None:
        tag: dict[str, Any] = json.loads(form.structural_tag)
        if "structures" not in tag:
            return tag
    from vllm.parser.abstract_parser import structured_outputs_to_format  # `schemas.process` must not load vLLM.

    return {"type": "structural_tag", "format": structured_outputs_to_format(form).model_dump()}


def _nodes(tag: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects in a structural tag, but not those within clients' schemas."""
    pending: list[Any] = [tag]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            yield node
            if node.get("type") != "json_schema":
                pending.extend(node.values())
