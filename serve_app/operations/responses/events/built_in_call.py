"""A call of a built-in tool that the client runs, such as `shell_call`, while the model writes it.

It is shown once it is whole. If it was cut off, or its arguments do not fit, it is shown as what it is to the
model: a call of a function.
"""

from dataclasses import dataclass, field

from serve_app.operations.responses.events.items import NewId
from serve_app.operations.responses.events.writer import Item
from serve_app.schemas.responses.functions import ClientBuiltIn
from serve_app.validation.body import read_json_object


@dataclass(frozen=True, slots=True)
class BuiltInCall:
    """A call, with the pieces of its arguments so far; `name` is what the model calls the tool."""

    call_id: str
    name: str
    tool: type[ClientBuiltIn]
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """The JSON text, which may not be valid."""
        return "".join(self.pieces)

    def item(self, new_id: NewId) -> Item | None:
        """Return the item of a whole call, in progress; None if its arguments do not fit."""
        arguments = read_json_object(self.arguments)
        fields = self.tool.read_call(arguments) if arguments is not None else None
        if fields is None:
            return None
        kind = self.tool.call_type
        head = {"id": new_id(self.tool.id_prefix), "type": kind, "status": "in_progress", "call_id": self.call_id}
        return head | fields
