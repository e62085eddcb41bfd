"""The form that an answer must have: text, any JSON, or JSON after a schema."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from serve_app.schemas.base import Name, WireModel


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


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
