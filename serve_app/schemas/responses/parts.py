"""The parts of a message in a response's input: texts, images and files, and what the model wrote."""

import re
from typing import Annotated, Any, Literal, LiteralString, Self

from pydantic import Field, model_validator

from serve_app.schemas.base import WireModel, invalid, refusal
from serve_app.schemas.messages import PromptCacheBreakpoint

FileId = Annotated[str, Field(min_length=1, max_length=128)]

_IMAGE_DATA = re.compile(r"data:image/(?:png|jpe?g|webp|gif);base64,")
_TEXT_DATA = re.compile(
    r"data:(?:text/[\w.+-]+|application/(?:(?:[\w.-]+\+)?(?:json|xml|yaml)|(?:x-)?(?:javascript|ndjson|python|sh|sql|toml|"
    r"typescript|yaml)|jsonl|octet-stream))(?:;[\w-]+=[\w.-]+)*;base64,",
    re.ASCII | re.IGNORECASE,
)
READABLE_FILES: LiteralString = (
    "Unsupported value: '{param}' is not a file of text. Files of text in UTF-8 are read, such as .txt, .md, .csv, "
    ".json, .html or source code; send an image as 'input_image', and a PDF or another document as its text."
)


def _check_one(part: WireModel, *names: LiteralString) -> None:
    given = [name for name in names if getattr(part, name) is not None]
    if len(given) > 1:
        raise refusal(
            "mutually_exclusive_parameters",
            f"Mutually exclusive parameters: '{{param}}' and '{given[0]}'. Send only one of them.",
            f".{given[1]}",
        )


class InputTextPart(WireModel):
    """Text that the model reads.

    Args:
        text: the text.
    """

    type: Literal["input_text"]
    text: str
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class InputImagePart(WireModel):
    """An image: carried in its URL, or stored under an id.

    Args:
        image_url: the image as a data URL. Send either this or `file_id`.
        file_id: the id of an uploaded image.
        detail: accepted for compatibility; has no effect.
    """

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: FileId | None = None
    detail: Literal["low", "high", "auto", "original"] | None = "auto"
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_one(self, "file_id", "image_url")
        if self.file_id is not None:
            return self
        if self.image_url is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", ".image_url")
        if _IMAGE_DATA.match(self.image_url) is None:
            raise refusal(
                "invalid_image_url",
                "Invalid '{param}': expected a data URL that holds a base64-encoded image "
                "(data:image/png;base64,...). The service does not download images: send the image itself, or upload "
                "it to /v1/files and send its 'file_id'.",
                ".image_url",
            )
        return self


class InputFilePart(WireModel):
    """A file of text: carried as a data URL, or stored under an id.

    Args:
        file_data: the file as a data URL. Send either this or `file_id`.
        filename: the file's name.
        file_id: the id of an uploaded file.
        file_url: not supported: the service downloads no files.
        detail: accepted for compatibility; has no effect.
    """

    type: Literal["input_file"]
    file_data: str | None = None
    filename: Annotated[str, Field(max_length=512)] | None = None
    file_id: FileId | None = None
    file_url: str | None = None
    detail: Literal["low", "high", "auto"] | None = None
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_one(self, "file_id", "file_data", "file_url")
        if self.file_url is not None:
            raise refusal(
                "unsupported_value",
                "Unsupported value: '{param}'. The service does not download files: send the content itself as "
                "'file_data', or upload the file to /v1/files and send its 'file_id'.",
                ".file_url",
            )
        if self.file_data is None and self.file_id is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", ".file_data")
        if self.file_data is not None and not self.file_data.startswith("data:"):
            raise invalid(
                "Invalid '{param}': expected a data URL that holds a base64-encoded file (data:text/plain;base64,...).",
                ".file_data",
            )
        if self.file_data is not None and _TEXT_DATA.match(self.file_data) is None:
            raise refusal("unsupported_value", READABLE_FILES, ".file_data")
        return self


class OutputTextPart(WireModel):
    """Text that the model wrote.

    Args:
        text: the text.
        annotations: accepted from answers; has no effect.
        logprobs: accepted from answers; has no effect.
        parsed: accepted from client libraries; has no effect.
    """

    type: Literal["output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    parsed: Any = None


class OutputRefusalPart(WireModel):
    """The text with which the model declines.

    Args:
        refusal: the text.
    """

    type: Literal["refusal"]
    refusal: str


Part = Annotated[
    InputTextPart | InputImagePart | InputFilePart | OutputTextPart | OutputRefusalPart, Field(discriminator="type")
]
