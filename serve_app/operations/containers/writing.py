"""The code of a call while the model writes it, read piece by piece from the JSON of its arguments.

Whether that is a valid object is known at its end only, where `tool` checks it.
"""

from typing import Final

from deployments.models.contract.text_member import TextMember
from serve_app.operations.responses.events.server_call import FieldInWriting, ToolEvent
from serve_app.operations.responses.events.writer import Item

EVENT: Final = "response.code_interpreter_call"


class CodeInWriting(FieldInWriting):
    """A call of the code interpreter while the model writes it."""

    def __init__(self, item: Item) -> None:
        super().__init__(item, f"{EVENT}_code", "code", f"{EVENT}.in_progress")
        self._code = TextMember("code")

    def take(self, text: str) -> list[ToolEvent]:
        """Return the event for more of the code, if there is more."""
        return super().take(self._code.take(text))
