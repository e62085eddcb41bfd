"""Compaction within a response: the model sums up the conversation, and an item carries the sealed summary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.prompt.history import Message, message_tokens, summary_message

SUMMARIZE: Final = (
    "Summarize the conversation so far for the model that continues it: what was asked, what was found and decided, "
    "facts, names and numbers that are still needed, and what is left to do. Write only the summary."
)
SUMMARY_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Compaction:
    """When a response compacts its conversation, and what seals the summary.

    That is when the prompt has more than `threshold_tokens`. None means always: the response then consists of the
    summary alone.
    """

    seal: Callable[[str], str]
    threshold_tokens: int | None

    @property
    def is_whole_response(self) -> bool:
        """Whether the client asked for nothing else."""
        return self.threshold_tokens is None

    def is_due(self, messages: Sequence[Message]) -> bool:
        """Return whether a conversation has to be compacted before the model continues it."""
        if self.threshold_tokens is None:
            return True
        return len(_turns(messages)[0]) > 1 and sum(map(message_tokens, messages)) > self.threshold_tokens

    def item(self, summary: str) -> Item:
        """Return the item that carries a summary."""
        return {"id": new_id("cmp"), "type": "compaction", "encrypted_content": self.seal(summary)}


def compacted(messages: Sequence[Message], summary: str) -> list[Message]:
    """Return a conversation with a summary in place of what was said before its last turn.

    Instructions and the user's messages stay, and so does the last turn with its calls.
    """
    before, last = _turns(messages)
    kept = [message for message in before if message["role"] in ("system", "developer", "user")]
    return [*kept, summary_message(summary), *last]


def _turns(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the messages before the user's last one, and those from it on."""
    asked = [index for index, message in enumerate(messages) if message["role"] == "user"]
    begin = asked[-1] if asked else len(messages)
    return list(messages[:begin]), list(messages[begin:])
