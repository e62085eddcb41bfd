"""The items of calls that the client carries out: of functions and custom tools, and their outputs."""

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from serve_app.schemas.base import NAME_PATTERN, WireModel
from serve_app.schemas.responses.built_in_tool import ItemId
from serve_app.schemas.responses.parts import InputFilePart, InputImagePart, InputTextPart

CallId = Annotated[str, Field(min_length=1, max_length=256)]
Status = Annotated[
    Literal["in_progress", "completed", "incomplete"], Field(description="The state of the item, as an answer has it.")
]

CALL_OUTPUTS = ("function_call_output", "custom_tool_call_output")
"""The types of the outputs."""


class FunctionCallItem(WireModel):
    """A call that the model made; client libraries add the last fields.

    Args:
        call_id: the id of the call, which its output refers to.
        name: the function's name.
        arguments: the arguments as JSON text, as the model wrote them.
        namespace: accepted from answers; has no effect.
        caller: accepted from answers; has no effect.
        parsed_arguments: accepted from client libraries; has no effect.
        created_by: accepted from answers; has no effect.
    """

    type: Literal["function_call"]
    call_id: CallId
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)]
    arguments: str
    id: ItemId | None = None
    status: Status | None = None
    namespace: str | None = None
    caller: Any = None
    parsed_arguments: Any = None
    created_by: str | None = None


class CustomToolCallItem(WireModel):
    """A call of a custom tool that the model made; client libraries add the last fields.

    Args:
        call_id: the id of the call, which its output refers to.
        name: the tool's name.
        input: the input, as the model wrote it.
        namespace: the group that the tool belongs to.
        caller: accepted from answers; has no effect.
        created_by: accepted from answers; has no effect.
    """

    type: Literal["custom_tool_call"]
    call_id: CallId
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)]
    input: str
    id: ItemId | None = None
    status: Status | None = None
    namespace: str | None = None
    caller: Any = None
    created_by: str | None = None


class CallOutputItem(WireModel):
    """The output of a call of a function or a custom tool.

    Args:
        type: whether a function or a custom tool was called.
        call_id: the id of the call that this is the output of.
        output: the output: a text, or parts with text, images and files.
        name: accepted from answers; has no effect.
        namespace: accepted from answers; has no effect.
        caller: accepted from answers; has no effect.
        created_by: accepted from answers; has no effect.
    """

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    output: (
        Annotated[str, Tag("?string")]
        | Annotated[
            list[Annotated[InputTextPart | InputImagePart | InputFilePart, Field(discriminator="type")]],
            Field(fail_fast=True),
            Tag("?array of objects"),
        ]
    )
    id: ItemId | None = None
    status: Status | None = None
    name: str | None = None
    namespace: str | None = None
    caller: Any = None
    created_by: str | None = None
