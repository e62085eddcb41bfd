"""The forms that an answer is held to: their bounds, their older names, and what the engine gets of them."""

import json

import pytest

from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.structured_outputs import MAX_GRAMMAR_CHARS, MAX_TAG_CHARS
from tests.unit.schemas.test_engine_options import engine_body, error_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
STRICT = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
    **SCHEMA, "required": ["a"], "additionalProperties": False}}}  # fmt: skip
both = pytest.mark.parametrize("schema", [ChatRequest, CompletionRequest])

TAG = json.dumps({"format": {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}})
FORMS = {
    "json": SCHEMA,
    "regex": "[a-z]{3}",
    "choice": ["a", "b"],
    "grammar": 'root ::= "a"',
    "json_object": True,
    "structural_tag": TAG,
}


@both
@pytest.mark.parametrize("name", FORMS)
def test_each_form_arrives_as_it_was_sent(schema, name):
    form = {name: FORMS[name]}
    assert engine_body(schema, structured_outputs=form)["structured_outputs"] == form
    with_nulls = {**dict.fromkeys(FORMS), **form, "disable_any_whitespace": True}
    arrived = engine_body(schema, structured_outputs=with_nulls)["structured_outputs"]
    assert arrived == {**form, "disable_any_whitespace": True}


@both
def test_what_is_false_is_not_asked_for_and_any_json_is(schema):
    arrived = engine_body(schema, structured_outputs={"json": {}, "json_object": False})["structured_outputs"]
    assert arrived == {"json": {}}
    error = error_of(schema, structured_outputs={"json": {}, "regex": "a"})
    assert (error.param, "exactly one" in error.message) == ("structured_outputs", True)


@both
@pytest.mark.parametrize("name", ["json", "regex", "choice", "grammar"])
def test_older_names_are_said_in_the_newer_way(schema, name):
    arrived = engine_body(schema, **{f"guided_{name}": FORMS[name]})
    assert arrived["structured_outputs"] == {name: FORMS[name]}
    assert f"guided_{name}" not in arrived


def deep(depth):
    return {"type": "array", "items": deep(depth - 1)} if depth else {}


def tag_of(content):
    return json.dumps({"format": {"type": "tag", "begin": "<a>", "content": content, "end": "</a>"}})


BEYOND = {
    "a schema that is too deep": ("json", deep(40)),
    "the same as text": ("json", json.dumps(deep(40))),
    "a text that is no JSON": ("json", "{"),
    "a text that is no schema": ("json", "[1]"),
    "a schema of another kind": ("json", 5),
    "a pattern that is too long": ("regex", "a" * 1001),
    "repetitions that multiply": ("regex", "((a{1,100}){1,100}){1,100}"),
    "a pattern with a NUL": ("regex", "a\0"),
    "no pattern": ("regex", ""),
    "no choice": ("choice", []),
    "a thousand choices and one": ("choice", ["a"] * 1001),
    "choices that are too long": ("choice", ["a" * 15_001]),
    "a choice that is no text": ("choice", [1]),
    "a grammar that is too long": ("grammar", 'root ::= "' + "a" * MAX_GRAMMAR_CHARS + '"'),
    "a grammar that imports": ("grammar", "%import python.INT\nstart: INT"),
    "a text that is no grammar": ("grammar", "yes or no"),
    "a tag that is no JSON": ("structural_tag", "{"),
    "a tag that is too long": ("structural_tag", json.dumps({"a": "x" * MAX_TAG_CHARS})),
    "a tag with a schema that is too deep": (
        "structural_tag",
        tag_of({"type": "json_schema", "json_schema": deep(35)}),
    ),
    "a tag with repetitions that multiply": (
        "structural_tag",
        tag_of({"type": "regex", "pattern": "((a{1,100}){1,100}){1,100}"}),
    ),
}


@both
@pytest.mark.parametrize("name", BEYOND)
def test_a_form_beyond_its_bounds_is_refused_by_name(schema, name):
    form, value = BEYOND[name]
    error = error_of(schema, structured_outputs={form: value})
    assert error.param.startswith(f"structured_outputs.{form}")
    if form != "structural_tag":
        assert error_of(schema, **{f"guided_{form}": value}).param.startswith(f"guided_{form}")


@pytest.mark.parametrize("form", [{}, {"json_object": False}, {"regex": "a", "choice": ["a"]}, {"json": None}])
def test_there_is_exactly_one_form(form):
    assert error_of(ChatRequest, structured_outputs=form).param == "structured_outputs"


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"regex": "a"}, "guided_regex": "a"},
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        {"guided_choice": ["a"], "guided_regex": "a"},
    ],
)
@both
def test_a_form_is_given_in_one_field(schema, fields):
    assert error_of(schema, **fields).code == "invalid_parameter_combination"


def test_a_form_beside_plain_text_is_no_conflict():
    assert error_of(ChatRequest, guided_regex="a", response_format={"type": "text"}) is None


@pytest.mark.parametrize(
    ("fields", "is_fine"),
    [
        ({"tools": [TOOL]}, True),
        ({"tools": [TOOL], "tool_choice": "none"}, True),
        ({"tools": [TOOL], "tool_choice": "required"}, False),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, False),
        ({"tools": [STRICT]}, False),
        ({"functions": [TOOL["function"]], "function_call": {"name": "f"}}, False),
    ],
)
def test_a_form_and_a_call_that_is_guided_exclude_each_other(fields, is_fine):
    error = error_of(ChatRequest, structured_outputs={"regex": "a"}, **fields)
    assert (error is None) is is_fine
    assert is_fine or error.param == "structured_outputs"


@pytest.mark.parametrize("name", ["whitespace_pattern", "disable_additional_properties"])
def test_settings_of_the_model_are_refused_by_name(name):
    error = error_of(ChatRequest, structured_outputs={"json": SCHEMA, name: True})
    assert (error.param, error.code) == (f"structured_outputs.{name}", "unsupported_parameter")


def test_completions_take_a_response_format_within_the_same_bounds():
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    assert engine_body(CompletionRequest, response_format=wanted)["response_format"] == wanted
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": deep(40)}}
    assert error_of(CompletionRequest, response_format=wanted).param == "response_format.json_schema.schema"


@both
@pytest.mark.parametrize("field", ["structured_outputs", "guided_grammar"])
def test_a_grammar_of_lark_arrives_in_ebnf(schema, field):
    grammar = 'start: "a" | "b"'
    arrived = engine_body(schema, **{field: {"grammar": grammar} if field == "structured_outputs" else grammar})
    assert arrived["structured_outputs"] == {"grammar": 'root ::= rule_start\nrule_start ::= "a" | "b"'}


FORMAT = {"type": "structural_tag", **json.loads(TAG)}
PARTS = {
    "type": "structural_tag",
    "structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}],
    "triggers": ["<a>"],
}


@both
@pytest.mark.parametrize("wanted", [FORMAT, PARTS], ids=["format", "parts"])
def test_a_structural_tag_is_a_response_format(schema, wanted):
    assert engine_body(schema, response_format=wanted)["response_format"] == wanted


BAD_TAGS = {
    "neither": {"type": "structural_tag"},
    "both": {**FORMAT, **PARTS},
    "half": {"type": "structural_tag", "structures": PARTS["structures"]},
    "no part": {**PARTS, "structures": []},
    "a part without a schema": {**PARTS, "structures": [{"begin": "<a>", "end": "</a>"}]},
    "too deep": {**PARTS, "structures": [{"begin": "<a>", "schema": deep(40), "end": "</a>"}]},
    "too long": {**PARTS, "triggers": ["a" * MAX_TAG_CHARS]},
    "repetitions that multiply": {
        "type": "structural_tag",
        "format": {"type": "regex", "pattern": "((a{1,100}){1,100}){1,100}"},
    },
}


@both
@pytest.mark.parametrize("name", BAD_TAGS)
def test_a_structural_tag_beyond_its_bounds_is_refused_by_name(schema, name):
    assert error_of(schema, response_format=BAD_TAGS[name]).param.startswith("response_format")


def test_a_structural_tag_and_a_call_that_is_guided_exclude_each_other():
    error = error_of(ChatRequest, response_format=FORMAT, tools=[TOOL], tool_choice="required")
    assert (error.param, error.code) == ("response_format", "invalid_parameter_combination")
