"""Items that change what holds from their place in a conversation on: more tools, or another configuration."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from serve_app.schemas.base import Effort, WireModel, refusal
from serve_app.schemas.json_schema import check_json_schema
from serve_app.schemas.responses.built_in_tool import ItemId
from serve_app.schemas.responses.text import JsonSchemaFormat
from serve_app.schemas.responses.tools import LaterTools
from serve_app.schemas.structured_outputs import JsonObjectFormat, TextFormat

ADDITIONAL_TOOLS = "additional_tools"
CONFIGURATION_UPDATE = "configuration_update"


class AdditionalToolsItem(WireModel):
    """Tools that the model may call from here on, beside those of the request.

    Args:
        role: only `developer`.
        tools: functions, namespaces and tools of the service.
    """

    type: Literal["additional_tools"]
    role: Literal["developer"]
    tools: LaterTools
    id: ItemId | None = None


class ReasoningUpdate(WireModel):
    """How much the model reasons from here on."""

    effort: Effort | None = None


class TextUpdate(WireModel):
    """The form that texts have from here on.

    Args:
        format: text, any JSON object, or JSON that fits a schema.
    """

    format: Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class ConfigurationUpdateItem(WireModel):
    """A change of the configuration, which holds until the next one and wins over the fields of the request.

    Args:
        reasoning: how much the model reasons.
        text: the form of the text.
    """

    type: Literal["configuration_update"]
    reasoning: ReasoningUpdate | None = None
    text: TextUpdate | None = None
    id: ItemId | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.reasoning is None and self.text is None:
            raise refusal(
                "missing_required_parameter",
                "Missing required parameter: '{param}', or 'text' beside it. An update changes at least one.",
                ".reasoning",
            )
        if self.text is not None and isinstance(self.text.format, JsonSchemaFormat):
            wanted = self.text.format
            check_json_schema(wanted.definition, ".text.format.schema", strict=bool(wanted.strict))
        return self
