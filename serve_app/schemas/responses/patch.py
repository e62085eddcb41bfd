"""Patches of files as a tool of a response, which the client applies."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from serve_app.schemas.base import WireModel
from serve_app.schemas.json_schema import object_schema
from serve_app.schemas.responses.fixed_tool import STRING, FixedTool, read_as
from serve_app.schemas.tools import JsonSchema


class WriteFile(WireModel):
    """A file that is created or changed.

    Args:
        type: what happens to the file.
        path: the file's path.
        diff: the lines that change.
    """

    type: Literal["create_file", "update_file"]
    path: str
    diff: str


class DeleteFile(WireModel):
    """A file that is deleted.

    Args:
        path: the file's path.
    """

    model_config = ConfigDict(extra="ignore")

    type: Literal["delete_file"]
    path: str


class Patch(WireModel):
    """The operation of a call.

    Args:
        operation: what happens to which file.
    """

    operation: Annotated[WriteFile | DeleteFile, Field(discriminator="type")]


class ApplyPatchTool(FixedTool):
    """Creates, changes and deletes files on the client's machine.

    Args:
        allowed_callers: accepted for compatibility; has no effect.
    """

    called = "apply_patch"
    call_type = "apply_patch_call"
    id_prefix = "apc"
    type: Literal["apply_patch"]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None

    def explain(self) -> str:
        """Return the function's description."""
        return (
            "Creates, changes or deletes one file on the user's machine. The diff of a new file has a '+' before each "
            "line. The diff of a change has sections: a line '@@', or '@@' with the line that begins the function or "
            "class; then a few unchanged lines with a space before each, the removed lines with '-', the added ones "
            "with '+', and a few unchanged lines again."
        )

    def arguments(self) -> JsonSchema:
        """Return the JSON schema of the operation."""
        writes = [
            {"type": {"type": "string", "enum": [kind]}, "path": STRING, "diff": STRING}
            for kind in ("create_file", "update_file")
        ]
        deletes = {"type": {"type": "string", "enum": ["delete_file"]}, "path": STRING}
        return object_schema({"operation": {"anyOf": [object_schema(one) for one in (*writes, deletes)]}})

    @classmethod
    def read_call(cls, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the operation."""
        return read_as(Patch, arguments)

    @classmethod
    def show_call(cls, item: Mapping[str, Any]) -> Any:
        """Return the operation."""
        return {"operation": item.get("operation")}
