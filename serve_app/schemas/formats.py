"""The form that an answer must have: text, any JSON, JSON after a schema, or text with parts of a form of their own."""

from typing import Annotated, Any, Literal

import orjson
from pydantic import ConfigDict, Field, model_validator

from serve_app.schemas.base import Name, WireModel, refusal
from serve_app.schemas.structured_outputs import MAX_TAG_CHARS, check_tag_parts


class TextFormat(WireModel):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(WireModel):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(WireModel):
    """A JSON schema with a name; `strict` asks for OpenAI's subset of schemas."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: Name
    description: str | None = None
    definition: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(WireModel):
    """JSON that keeps to a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


class Structure(WireModel):
    """A part of an answer, from the text that begins it to the one that ends it, that is JSON after a schema."""

    model_config = ConfigDict(serialize_by_alias=True)

    begin: str
    definition: dict[str, Any] = Field(alias="schema")
    end: str


class StructuralTagFormat(WireModel):
    """Text with parts of a form of their own, as vLLM has it: in xgrammar's words, or as parts and what begins one."""

    type: Literal["structural_tag"]
    format: dict[str, Any] | None = None
    structures: Annotated[list[Structure], Field(min_length=1)] | None = None
    triggers: Annotated[list[str], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "StructuralTagFormat":
        given = (self.format is not None, self.structures is not None, self.triggers is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise refusal(
                "invalid_value",
                "Invalid value for '{param}': expected either 'format', or 'structures' and 'triggers'.",
            )
        tag = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if len(orjson.dumps(tag)) > MAX_TAG_CHARS:
            raise refusal("invalid_value", f"Invalid value for '{{param}}': it is larger than {MAX_TAG_CHARS} bytes.")
        check_tag_parts(tag)
        return self


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | StructuralTagFormat, Field(discriminator="type")
]
