"""Whatever a grammar of a rewritten schema lets a model write to its end is valid, by the word of `jsonschema`."""

import json
import random
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version

import jsonschema
import pytest
from referencing import Registry

from deployments.replica.schemas.rewriting.parts import SchemaRefused
from deployments.replica.schemas.rewriting.rewriter import rewrite
from deployments.replica.schemas.rewritten import rewritten_form
from tests.contract.schemas import walking

A = {"type": "string", "enum": ["a", "bb"]}
NUMBER = {"type": "integer"}
DRAFTS = {"draft7": jsonschema.Draft7Validator, "draft2020-12": jsonschema.Draft202012Validator}
WRONG = (
    None,
    True,
    0,
    1,
    2,
    5,
    -3,
    2.5,
    1e-7,
    "",
    "a",
    "bb",
    "exactly",
    "vxactly",
    "see INV-12.",
    'say "b"\\\n',
    [],
    [1],
    [1, 1, 2],
    ["a", "a"],
    ["a", 1, None],
    {},
    {"a": "x"},
    {"a": 1, "b": 2},
    {"": "zzzzz"},
    {"k": "a"},
    {"k": "b", "n": 1},
    {"b": 1},
)

KEPT = {
    "anyOf beside properties": {
        "type": "object",
        "properties": {"a": A},
        "required": ["a"],
        "additionalProperties": False,
        "anyOf": [{"required": ["a"]}],
    },
    "length beside anyOf": {"type": "string", "maxLength": 1, "anyOf": [{"type": "string"}, {"type": "null"}]},
    "allOf of enums": {"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]},
    "allOf of objects": {"allOf": [{"properties": {"a": A}}, {"properties": {"b": NUMBER}, "required": ["a", "b"]}]},
    "required alone": {"type": "object", "required": ["a"]},
    "required beyond properties": {"type": "object", "properties": {"a": A}, "required": ["a", "b"]},
    "condition": {
        "properties": {"k": {"enum": ["a", "b"]}, "n": NUMBER},
        "required": ["k"],
        "if": {"properties": {"k": {"const": "a"}}},
        "then": {"required": ["n"]},
    },
    "dependentRequired": {"properties": {"a": A, "b": NUMBER}, "required": ["a"], "dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {
        "properties": {"a": A, "b": NUMBER},
        "dependentSchemas": {"a": {"properties": {"b": {"minimum": 2}}}},
    },
    "dependencies": {"properties": {"a": A, "b": NUMBER}, "dependencies": {"a": ["b"]}},
    "enum and not": {"enum": ["bad", "xyz"], "not": {"const": "bad"}},
    "not a text": {"type": "string", "not": {"enum": ["a", "bb"]}},
    "not a number": {"type": "integer", "not": {"const": 1}},
    "not required": {"properties": {"a": A, "b": NUMBER}, "not": {"required": ["a"]}},
    "not a type": {"not": {"type": ["object", "string"]}},
    "oneOf that excludes": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    "oneOf that overlaps": {"oneOf": [{"type": "integer", "minimum": 2}, {"type": "integer", "maximum": 5}]},
    "oneOf with a discriminator": {
        "oneOf": [
            {"properties": {"k": {"const": "a"}, "n": NUMBER}, "required": ["k", "n"]},
            {"properties": {"k": {"const": "b"}, "s": A}, "required": ["k"]},
        ]
    },
    "beside a reference": {"$ref": "#/$defs/s", "enum": ["a", 1], "$defs": {"s": {"type": "string"}}},
    "beside a reference, and tuples elsewhere": {
        "$ref": "#/$defs/s",
        "exclusiveMaximum": 2,
        "$defs": {"s": {"enum": [-1, 2]}, "t": {"items": [{"type": "integer"}]}},
    },
    "anchor": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#here",
        "$defs": {"s": {"$anchor": "here", "type": "integer"}},
    },
    "dynamic reference": {"$dynamicRef": "#here", "$defs": {"s": {"$dynamicAnchor": "here", "type": "integer"}}},
    "escaped pointer": {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "integer"}}},
    "recursion": {"type": "object", "properties": {"v": NUMBER, "n": {"$ref": "#"}}, "required": ["v"]},
    "bounds without a type": {"minimum": 5},
    "length without a type": {"maxLength": 2},
    "pattern without a type": {"pattern": "^a"},
    "enum beside a type": {"type": "string", "enum": [1, "a", None]},
    "pattern that is open": {"type": "string", "pattern": "INV-[0-9]{2}"},
    "pattern with optional repetitions": {"type": "string", "pattern": "^a(?:[0-9]+b)?(?:\\.[0-9]{1,3})?z$"},
    "pattern of quotes": {"type": "string", "pattern": '^say "[a-z\\\\]+"\n$'},
    "pattern and length": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
    "format and length": {"type": "string", "format": "date", "maxLength": 10},
    "two patterns": {"allOf": [{"pattern": "^a"}, {"pattern": "b$"}], "type": "string"},
    "array of anything": {"type": "array", "maxItems": 3},
    "array of some": {"type": "array", "minItems": 1},
    "tuple of draft 7": {"items": [A, NUMBER], "additionalItems": False, "type": "array"},
    "tuple": {"type": "array", "prefixItems": [A, NUMBER], "items": False, "minItems": 2},
    "uniqueItems of few values": {"type": "array", "items": A, "uniqueItems": True},
    "contains": {"type": "array", "items": {"type": ["string", "integer"]}, "contains": {"const": "a"}},
    "contains a number of times": {
        "type": "array",
        "contains": NUMBER,
        "minContains": 2,
        "maxContains": 2,
        "items": {},
    },
    "open object": {"properties": {"a": A}, "additionalProperties": NUMBER, "type": "object"},
    "patternProperties": {"type": "object", "patternProperties": {"^s_": A, "^n_": NUMBER}},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^[a-b]+$"}, "additionalProperties": NUMBER},
    "names that are impossible": {"propertyNames": False, "minProperties": 1},
    "counted properties": {
        "type": "object",
        "properties": {"a": A, "b": A, "c": A},
        "minProperties": 1,
        "maxProperties": 2,
    },
    "unevaluatedProperties": {
        "allOf": [{"properties": {"a": A}}],
        "properties": {"b": NUMBER},
        "unevaluatedProperties": False,
    },
    "multiples": {"type": "integer", "multipleOf": 3, "minimum": 0, "maximum": 20},
    "multiples without bounds": {"type": "integer", "multipleOf": 7},
    "bounds beyond 64 bits": {"type": "integer", "maximum": 1e30},
    "narrow bounds": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-7},
    "names of annotations": {
        "anyOf": [
            {"type": "object", "properties": {"title": {"const": "a"}}, "required": ["title"]},
            {"type": "object", "properties": {"title": {"const": 1}}, "required": ["title"]},
        ]
    },
    "values that are objects": {"enum": [{"type": "array", "uniqueItems": True}, {"title": 1}, [1, {"title": 2}]]},
}

REFUSED = {
    "look-ahead": (
        {"type": "string", "pattern": "^(?!b)[ab]$"},
        "'pattern' at 'pattern' is not supported: it has look-around.",
    ),
    "const of another type": ({"type": "string", "const": 1}, "'const' at 'const' leaves no possible value"),
    "one of all": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "'oneOf' at 'oneOf' leaves no possible value"),
    "not a pattern": (
        {"properties": {"a": {"not": {"pattern": "a"}}}},
        "'pattern' at 'properties.a.not.pattern' is not supported within 'not'",
    ),
    "repeated items": (
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "'uniqueItems' at 'uniqueItems' is not",
    ),
    "fractions": (
        {"type": "number", "multipleOf": 0.01},
        "'multipleOf' at 'multipleOf' is not supported for fractions.",
    ),
    "foreign reference": ({"items": {"$ref": "other.json"}}, "'$ref' at 'items.$ref' points out of the schema."),
    "missing reference": ({"$ref": "#/$defs/a"}, "'$ref' at '$ref' points at a part that the schema does not have."),
    "no end": ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "leaves no possible value"),
    "word of another form": ({"anyOf": [{"minimum": "1"}]}, "'minimum' at 'anyOf[0].minimum' must be a number."),
    "too many combinations": (
        {"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(20)]},
        "it has too many combinations of alternatives.",
    ),
}


def validators_of(schema):
    stated = schema.get("$schema", "") if isinstance(schema, dict) else ""
    names = [name for name in DRAFTS if name.removeprefix("draft") in stated.replace("draft-07", "7")] or list(DRAFTS)
    text = json.dumps(schema)
    if "prefixItems" in text:
        names = ["draft2020-12"]
    elif '"items": [' in text and "$defs" not in text:  # The newer draft's validator ends where it meets one.
        names = ["draft7"]
    return [DRAFTS[name](schema, registry=Registry()) for name in names]


def answers_to(schema, wanted, *, number=12):
    """Return answers of a model that writes at random, and of one that is driven at values where it may."""
    grammar, source = walking.compiled(rewrite(schema)), random.Random(json.dumps(schema))
    found = set(walking.answers(grammar, source, number=number))
    for value in wanted:
        text = json.dumps(value, ensure_ascii=False)
        if walking.takes(grammar, text):
            found.add(text)
        found.update(walking.answers(grammar, source, text))
    return found


@pytest.mark.parametrize("schema", KEPT.values(), ids=KEPT.keys())
def test_answers_fit_what_is_kept(schema):
    answers = answers_to(schema, WRONG)
    assert answers
    for validator in validators_of(schema):
        assert [answer for answer in answers if not validator.is_valid(json.loads(answer))] == []


@pytest.mark.parametrize(("schema", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_the_rest_is_refused_by_name(schema, sentence):
    with pytest.raises(SchemaRefused) as refused:
        rewrite(schema)
    assert sentence in refused.value.sentence
    assert "xgrammar" not in refused.value.sentence


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "maxLength": 12}, 'a "b"\n\\ é😀'),
        ({"type": "string", "pattern": "^INV-"}, "INV-2024"),
        ({"type": "array", "maxItems": 3}, [1, "a", {}]),
        ({"type": "object"}, {"any": {"thing": [1]}}),
        ({"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"a": A}}, {"a": "bb", "c": 1}),
        ({"type": "number", "minimum": 0.1}, 0.1),
        ({"type": "integer", "maximum": 1e30}, 5),
        (KEPT["uniqueItems of few values"], ["a", "bb"]),
        (KEPT["condition"], {"k": "b", "n": 1}),
        ({"type": "string", "pattern": "^[^@]+@[^@]+$", "maxLength": 20}, "me@home.org"),
    ],
)
def test_ordinary_answers_stay_possible(schema, value):
    assert walking.takes(walking.compiled(rewrite(schema)), json.dumps(value, ensure_ascii=False))


# Expressions of a whole answer. An engine's own compiler drops anchors, and takes escapes that it does not know for the
# characters in them.
KEPT_EXPRESSIONS = [
    r"\Aabc\Z",
    "^yes|no$",
    "..",
    r"\01",
    "[^]a]",
    r"[\s\S]{2}",
    r"\d{3}\s\w+",
    r'"\\n',
    "(?:é|😀)+",
    "(?P<n>ab)c",
    "(a*)*b",
    "",
]
REFUSED_EXPRESSIONS = {
    "a$b": "it has an anchor within",
    "(a$)b": "it has an anchor within",
    "x(?:^)y": "it has an anchor within",
    r"\bfoo\b": "it has a word boundary",
    r"(a)\1": "it has a back reference",
    "(?=a)a": "it has look-around",
    "(?i)a": "it sets flags",
    r"\Gab": "it is not a regular expression that can be read",
    r"\Qa.b\E": "it is not a regular expression that can be read",
    "(a": "it is not a regular expression that can be read",
    r"[\ud800-\udfff]": "it leaves no text",
}


@pytest.mark.parametrize("expression", KEPT_EXPRESSIONS)
@pytest.mark.parametrize("is_in_tag", [False, True])
def test_answers_match_an_expression_as_a_whole(expression, is_in_tag):
    tag = json.dumps({"type": "structural_tag", "format": {"type": "regex", "pattern": expression}})
    text, _ = rewritten_form("structural_tag" if is_in_tag else "regex", tag if is_in_tag else expression)
    written = json.loads(text)["format"]["pattern"] if is_in_tag else text
    said = list(walking.answers(walking.compiled_expression(written), random.Random(1), number=20))
    assert said
    assert [one for one in said if not re.fullmatch(expression, one)] == []


def test_names_and_code_points_of_other_dialects_are_read():
    for foreign, ours in ((r"(?<n>a)\u{2028}", "a\u2028"), (r"\x{1F600}\{1}", "😀{1}")):
        text, _ = rewritten_form("regex", foreign)
        assert set(walking.answers(walking.compiled_expression(text), random.Random(1), number=3)) == {ours}


@pytest.mark.parametrize("expression", REFUSED_EXPRESSIONS)
def test_expressions_that_cannot_be_kept_are_refused_by_what_they_hold(expression):
    tag = json.dumps({"type": "structural_tag", "format": {"type": "regex", "pattern": expression}})
    for form, text in (("regex", expression), ("structural_tag", tag)):
        with pytest.raises(SchemaRefused) as refused:
            rewritten_form(form, text)
        why = REFUSED_EXPRESSIONS[expression].removeprefix("it " if form == "structural_tag" else "")
        assert why in refused.value.sentence
        assert ("format.pattern" in refused.value.sentence) == (form == "structural_tag")


def test_a_schema_that_is_written_too_deep_is_refused_unless_it_need_not_be_kept():
    deep = 1
    for _ in range(70):
        deep = [deep]
    schema = {"type": "object", "properties": {"a": {"const": deep}}}
    with pytest.raises(SchemaRefused, match="deeper than 64 levels"):
        rewritten_form("json", json.dumps(schema))
    calls = json.dumps([{"schema": schema, "must_fit": False}])
    assert rewritten_form("calls", calls)[1] == [{"type": "object"}]


def test_counts_of_properties_are_kept_by_the_compiler():
    names = ["a", "b", "c", "d"]
    for required in ([], ["b"], ["a", "d"]):
        for least in range(4):
            for most in range(max(least, len(required), 1), 5):
                schema = {
                    "type": "object",
                    "properties": {name: {"type": "null"} for name in names},
                    "required": required,
                    "minProperties": least,
                    "maxProperties": most,
                }
                grammar = walking.compiled(rewrite(schema))
                for chosen in range(16):
                    value = {name: None for index, name in enumerate(names) if chosen >> index & 1}
                    is_valid = jsonschema.Draft7Validator(schema).is_valid(value)
                    assert walking.takes(grammar, json.dumps(value)) == is_valid, (schema, value)


# What the suite has of each draft, at least, and how many of those may be refused.
MOST_REFUSED = {"draft7": 55, "draft2020-12": 90}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """The JSON Schema Test Suite, as it comes with the source distribution of the jsonschema that is locked."""
    folder = tmp_path_factory.mktemp("jsonschema")
    wanted = f"jsonschema=={version('jsonschema')}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary",
        "jsonschema",
        "--dest",
        folder,
        wanted,
    ]
    subprocess.run(command, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / "json" / "tests"


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("draft", DRAFTS)
def test_no_schema_of_the_suite_is_missed_in_silence(suite, draft):
    missed, num_kept, num_refused = [], 0, 0
    for file in sorted((suite / draft).rglob("*.json")):
        for group in json.loads(file.read_text()):
            schema, wanted = group["schema"], [test["data"] for test in group["tests"]]
            try:
                answers = answers_to(schema, [value for value in wanted if "\\ud" not in json.dumps(value)])
            except SchemaRefused:
                num_refused += 1
                continue
            num_kept += 1
            checker = {"format_checker": DRAFTS[draft].FORMAT_CHECKER} if "format" in file.parent.name else {}
            validator = DRAFTS[draft](schema, registry=Registry(), **checker)
            wrong = [answer for answer in answers if not validator.is_valid(json.loads(answer))]
            missed += [(file.name, group["description"], wrong)] if wrong else []
    print(f"{draft}: {num_kept} kept, {num_refused} refused")
    assert missed == []
    assert num_refused <= MOST_REFUSED[draft]
