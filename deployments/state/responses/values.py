"""Responses and conversations as values, and the errors of their stores.

A response or conversation of another account does not exist, nor does an expired or deleted one.
"""

from dataclasses import dataclass, field
from typing import Any

Item = dict[str, Any]

FINISHED_S = 45.0
"""How long a finished answer waits for a primary: its tokens are paid, and the loss of a region takes less."""
MAX_READ_BYTES = 32 * 1024 * 1024
"""The stored bytes that a prompt may read, and a page of items may hold."""


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A stored response.

    `response` is the object that clients see, `input` the stored items of its request. `runs` has, by item id, a
    request to a tool of the service and its answer. `cuts` are the lengths of the streamed pieces, to replay the
    stream.
    """

    response: Item
    input: list[Item]
    runs: dict[str, list[str]] = field(default_factory=dict)
    cuts: list[Any] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.response["id"])

    @property
    def items(self) -> list[Item]:
        """The turn's own items: its input, then its output."""
        return [*self.input, *self.response["output"]]


class TooMuchToRead(Exception):
    """The wanted content is larger than MAX_READ_BYTES."""


class TurnMissing(Exception):
    """A response, or one before it in its chain, does not exist."""

    def __init__(self, response_id: str) -> None:
        super().__init__(response_id)
        self.response_id = response_id


class TurnUnfinished(Exception):
    """The response is still running."""


class ConversationMissing(Exception):
    """There is no such conversation."""


class LeaseLost(Exception):
    """Another process runs the response now, or it was deleted: this process can no longer write it."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """The part of an earlier turn that a later one reads."""

    items: list[Item]
    runs: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """Events of a background response, and whether more will follow."""

    events: list[bytes]
    is_running: bool


@dataclass(frozen=True, slots=True)
class ClaimedResponse:
    """A background response whose runner is gone, for the process that has claimed it.

    `start` stored its `job`; `events` and `journal` were written so far, in this order.
    """

    account: str
    turn: StoredTurn
    job: Item
    epoch: int
    events: list[bytes]
    journal: list[bytes]
    is_cancelled: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its items. `created_at` is in Unix seconds."""

    id: str
    created_at: int
    metadata: dict[str, str]
