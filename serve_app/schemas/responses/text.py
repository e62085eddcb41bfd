"""The form of the text of a response."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from serve_app.schemas.base import Name, WireModel
from serve_app.schemas.structured_outputs import JsonObjectFormat, TextFormat


class JsonSchemaFormat(WireModel):
    """JSON that follows a schema.

    Args:
        name: a name for the schema.
        definition: the JSON schema.
        description: what the answer is for.
        strict: keeps to OpenAI's subset of schemas, and refuses a schema outside of it.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["json_schema"]
    name: Name
    definition: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextConfig(WireModel):
    """The form that the text of the answer must have.

    Args:
        format: text, any JSON object, or JSON that fits a schema.
        verbosity: accepted for compatibility; has no effect.
    """

    format: Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
