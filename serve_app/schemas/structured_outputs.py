"""The forms that an answer must have: `response_format`, and vLLM's schemas, patterns, choices, grammars and tags.

Only their size is bounded here, as in `json_schema`; `deployments.replica.schemas` bounds what they cost the engine.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, ConfigDict, Field, Tag, model_validator

from serve_app.schemas.base import Name, Refused, WireModel, clash, invalid, refusal
from serve_app.schemas.json_schema import MAX_ENUM_CHARS, MAX_ENUM_VALUES, check_json_schema, check_pattern
from serve_app.schemas.lark import is_lark, lark_to_ebnf
from serve_app.schemas.lark_regex import LarkRefused
from serve_app.validation.body import JsonRefused, parse_json

MAX_GRAMMAR_CHARS = 20_000
MAX_TAG_CHARS = 200_000
GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
"""vLLM's field names before `structured_outputs`."""
_FORMS = ("schema_of_json", "regex", "choice", "grammar", "json_object", "structural_tag")
_SCHEMA_KEYS = frozenset({"json_schema", "schema"})


def _check_schema(schema: str | dict[str, Any]) -> str | dict[str, Any]:
    value = _parsed(schema) if isinstance(schema, str) else schema
    if not isinstance(value, dict):
        raise refusal("invalid_type", "Invalid type for '{param}': expected a JSON schema, which is an object.")
    check_json_schema(value, "")
    return schema


def _parsed(text: str) -> Any:
    try:
        return parse_json(text.encode())
    except (JsonRefused, UnicodeEncodeError):
        raise invalid("Invalid value for '{param}': it is not JSON.") from None


def _check_regex(pattern: str) -> str:
    if "\0" in pattern:
        raise invalid("Invalid value for '{param}': a pattern has no NUL character.")
    check_pattern(pattern, "")
    return pattern


def _check_choice(choices: list[str]) -> list[str]:
    if sum(map(len, choices)) > MAX_ENUM_CHARS:
        raise invalid(f"Invalid value for '{{param}}': it has more than {MAX_ENUM_CHARS} characters in all.")
    return choices


def _check_grammar(grammar: str) -> str:
    try:
        if is_lark(grammar):
            lark_to_ebnf(grammar)
    except LarkRefused as refused:
        raise invalid(
            f"Invalid value for '{{param}}': it is read as a grammar of Lark, and {refused}. Grammars in EBNF, with "
            'rules such as \'root ::= "yes" | "no"\', are taken too.'
        ) from None
    return grammar


def _check_tag(tag: str) -> str:
    parsed = _parsed(tag)
    if not isinstance(parsed, dict):
        raise invalid("Invalid value for '{param}': it is not a JSON object.")
    check_tag_parts(parsed)
    return tag


def check_tag_parts(tag: dict[str, Any]) -> None:
    """Refuse a structural tag whose schemas or patterns are out of bounds."""
    pending: list[Any] = [tag]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in _SCHEMA_KEYS and isinstance(value, dict):
                    check_json_schema(value, "")
                    continue
                if key == "pattern" and isinstance(value, str):
                    check_pattern(value, "")
                pending.append(value)


JsonForm = Annotated[
    Annotated[str, Tag("?string")] | Annotated[dict[str, Any], Tag("?object")], AfterValidator(_check_schema)
]
Regex = Annotated[str, Field(min_length=1), AfterValidator(_check_regex)]
Choice = Annotated[
    list[str], Field(fail_fast=True, min_length=1, max_length=MAX_ENUM_VALUES), AfterValidator(_check_choice)
]
Grammar = Annotated[str, Field(max_length=MAX_GRAMMAR_CHARS), AfterValidator(_check_grammar)]
StructuralTag = Annotated[str, Field(max_length=MAX_TAG_CHARS), AfterValidator(_check_tag)]


class StructuredOutputs(WireModel):
    """The form of an answer: exactly one.

    Args:
        schema_of_json: a JSON schema that the answer must fit, as an object or as text.
        regex: a regular expression that the whole answer must match.
        choice: the texts that the answer may be.
        grammar: a grammar in EBNF or Lark that the answer must follow.
        json_object: the answer is any JSON object.
        structural_tag: text with structured parts, as xgrammar describes them in JSON.
        disable_any_whitespace: accepted for compatibility; the model's configuration decides.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    schema_of_json: JsonForm | None = Field(None, alias="json")
    regex: Regex | None = None
    choice: Choice | None = None
    grammar: Grammar | None = None
    json_object: bool | None = None
    structural_tag: StructuralTag | None = None
    disable_any_whitespace: bool | None = None

    # Known, and refused when set.
    disable_additional_properties: Refused = None
    whitespace_pattern: Refused = None

    @model_validator(mode="after")
    def _check_forms(self) -> "StructuredOutputs":
        if self.whitespace_pattern is not None or self.disable_additional_properties:
            name = "whitespace_pattern" if self.whitespace_pattern is not None else "disable_additional_properties"
            raise refusal(
                "unsupported_parameter",
                "Unsupported parameter: '{param}' is not supported: the configuration of the model decides that.",
                f".{name}",
            )
        given = [name for name in _FORMS if _is_given(getattr(self, name))]
        if len(given) != 1:
            names = "'json', 'regex', 'choice', 'grammar', 'json_object' or 'structural_tag'"
            raise invalid(f"Invalid value for '{{param}}': expected exactly one of {names}.")
        return self


def check_one_form(forms: Iterable[str]) -> None:
    """Check that at most one field sets the answer's form, given the names of those that do."""
    given = list(forms)
    if len(given) > 1:
        raise clash(given[0], given[1], given[1])


def rewrite_form(body: dict[str, Any]) -> None:
    """Rewrite the form of an answer for the engine: older names as new ones, Lark as EBNF, without null or false."""
    for name, form in GUIDED.items():
        value = body.pop(name, None)
        if value is not None:
            body["structured_outputs"] = {form: value}
    wanted = body.get("structured_outputs")
    if wanted is not None:
        body["structured_outputs"] = wanted = {key: value for key, value in wanted.items() if _is_given(value)}
        if "grammar" in wanted and is_lark(wanted["grammar"]):
            wanted["grammar"] = lark_to_ebnf(wanted["grammar"])


def needs_translation(form: StructuredOutputs | None) -> bool:
    """Return whether a form has fields that are null or false, or a Lark grammar."""
    if form is None:
        return False
    return any(not _is_given(getattr(form, name)) for name in form.model_fields_set) or bool(
        form.grammar and is_lark(form.grammar)
    )


def _is_given(value: object) -> bool:
    """Return whether a field is set; `"json": {}` is."""
    return value is not None and value is not False


class TextFormat(WireModel):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(WireModel):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(WireModel):
    """A JSON schema with a name; `strict` asks for OpenAI's subset of schemas.

    Args:
        name: a name for the schema.
        description: what the answer is for.
        definition: the JSON schema.
        strict: keeps to OpenAI's subset of schemas, and refuses a schema outside of it.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    name: Name
    description: str | None = None
    definition: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ChatJsonSchemaFormat(WireModel):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


class Structure(WireModel):
    """A part of an answer, between two texts, that is JSON of a schema.

    Args:
        begin: the text before the structured part.
        definition: the JSON schema of the part.
        end: the text after it.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    begin: str
    definition: dict[str, Any] = Field(alias="schema")
    end: str


class StructuralTagFormat(WireModel):
    """Text with structured parts, in xgrammar's `format` or in vLLM's older `structures` and `triggers`.

    Args:
        format: the form of the whole answer, as xgrammar describes it.
        structures: the structured parts; needs `triggers`.
        triggers: texts after which a structured part must follow.
    """

    type: Literal["structural_tag"]
    format: dict[str, Any] | None = None
    structures: Annotated[list[Structure], Field(min_length=1)] | None = None
    triggers: Annotated[list[str], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "StructuralTagFormat":
        given = (self.format is not None, self.structures is not None, self.triggers is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise invalid("Invalid value for '{param}': expected either 'format', or 'structures' and 'triggers'.")
        tag = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if len(orjson.dumps(tag)) > MAX_TAG_CHARS:
            raise invalid(f"Invalid value for '{{param}}': it is larger than {MAX_TAG_CHARS} bytes.")
        check_tag_parts(tag)
        return self


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | ChatJsonSchemaFormat | StructuralTagFormat, Field(discriminator="type")
]


def check_response_format(wanted: ResponseFormat | None) -> None:
    """Check the JSON schema of a `response_format`, if it has one."""
    if isinstance(wanted, ChatJsonSchemaFormat):
        schema = wanted.json_schema
        check_json_schema(schema.definition, "response_format.json_schema.schema", strict=bool(schema.strict))
