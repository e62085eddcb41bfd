"""The body of POST /v1/moderations, and OpenAI's categories."""

from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from serve_app.schemas.base import ModelId, OperationRequest, WireModel, refusal, unsupported_value
from serve_app.schemas.inputs import MAX_INPUTS

MAX_CHARS = 1_000_000

Category = Literal[
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/intent",
    "self-harm/instructions",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)


class TextInput(WireModel):
    """A text as a part of an input.

    Args:
        text: the text.
    """

    type: Literal["text"]
    text: str


class ImageInput(WireModel):
    """An image, which no model here can judge."""

    type: Literal["image_url"]

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, data: Any) -> Any:
        raise unsupported_value("image_url", "'text'")


def _kind_of_input(value: Any) -> str:
    if not isinstance(value, list):
        return "?string or array"
    return "?array of objects" if value and isinstance(value[0], dict) else "?array of strings"


_Parts = list[Annotated[TextInput | ImageInput, Field(discriminator="type")]]
Input = Annotated[
    Annotated[str, Tag("?string or array")]
    | Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS), Tag("?array of strings")]
    | Annotated[_Parts, Field(fail_fast=True, max_length=MAX_INPUTS), Tag("?array of objects")],
    Discriminator(_kind_of_input),
]


class ModerationRequest(OperationRequest):
    """Texts to be judged: one, several, or one in parts.

    Args:
        input: the text to judge, several texts, or one text in parts.
        model: the moderation model. Left out, the service's default.
    """

    example: ClassVar[dict[str, Any]] = {"input": "I like you."}

    input: Input
    model: ModelId | None = None

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        num_chars = sum(map(len, self.texts()))
        if num_chars > MAX_CHARS:
            raise refusal(
                "string_above_max_length",
                f"Invalid '{{param}}': too long. Expected at most {MAX_CHARS} characters in one request, but got "
                f"{num_chars} instead.",
                "input",
            )
        return self

    def texts(self) -> list[str]:
        """Return the texts to be judged."""
        if isinstance(self.input, str):
            return [self.input]
        texts = [part for part in self.input if isinstance(part, str)]
        return texts or ["\n".join(part.text for part in self.input if isinstance(part, TextInput))]
