"""The calls of tools in the messages of an assistant."""

from typing import Annotated, Literal

from pydantic import Field

from serve_app.schemas.base import NAME_PATTERN, WireModel


class CalledFunction(WireModel):
    """A function's name, and its arguments as the model wrote them, which may not be valid JSON.

    Args:
        name: the function's name.
        arguments: its arguments as JSON text, as the model wrote them.
    """

    name: str = Field(min_length=1, max_length=64, pattern=NAME_PATTERN)
    arguments: str


class CalledCustomTool(WireModel):
    """A custom tool's name, and its input.

    Args:
        name: the tool's name.
        input: its input, as the model wrote it.
    """

    name: str = Field(min_length=1, max_length=64, pattern=NAME_PATTERN)
    input: str


class CustomToolCall(WireModel):
    """A call of a custom tool that the assistant made.

    Args:
        id: the id of the call, which its tool message refers to.
        index: accepted from streams; has no effect.
    """

    id: str = Field(min_length=1, max_length=256)
    type: Literal["custom"]
    custom: CalledCustomTool
    index: int | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """What the model reads of it."""
        return self.custom.name, self.custom.input


class FunctionToolCall(WireModel):
    """A call that the assistant made; `index` comes from streams, where clients forget to drop it.

    Args:
        id: the id of the call, which its tool message refers to.
        index: accepted from streams; has no effect.
    """

    id: str = Field(min_length=1, max_length=256)
    type: Literal["function"]
    function: CalledFunction
    index: int | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """What the model reads of it."""
        return self.function.name, self.function.arguments


ToolCall = Annotated[FunctionToolCall | CustomToolCall, Field(discriminator="type")]
