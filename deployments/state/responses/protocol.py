"""What is kept of responses and conversations, and the contracts of what keeps it.

Kept by `store`, `background` and `conversations` beside this, and by the twin in `tests`. An id
that belongs to another account, has expired or was deleted is one that does not exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One response as it is kept.

    `response` is the object as clients see it, `input` the items that this request brought, in their stored form.
    `runs` holds, by item id, what a tool of the service was asked and what it answered. `cuts` are the lengths of the
    pieces in which the answer was streamed, for streaming it again.
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
        """The turn's own items: what was asked, then what was answered."""
        return [*self.input, *self.response["output"]]


class TurnMissing(Exception):
    """A response, or one before it in its chain, is not there."""

    def __init__(self, response_id: str) -> None:
        super().__init__(response_id)
        self.response_id = response_id


class TurnUnfinished(Exception):
    """The response is still being made."""


class ConversationMissing(Exception):
    """There is no such conversation."""


class LeaseLost(Exception):
    """Somebody else runs the response now, or it was deleted: what is still written here counts no more."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """What a later turn reads of an earlier one."""

    items: list[Item]
    runs: dict[str, list[str]]


class Responses(Protocol):
    """Finished responses."""

    async def save(
        self, account: str, turn: StoredTurn, *, expires_at: float, conversation_id: str | None = None
    ) -> None:
        """Keep a response, and add its items to the conversation, where that is still there."""
        ...

    async def load(self, account: str, response_id: str) -> StoredTurn | None:
        """Return a response; one that runs in the background as it stands."""
        ...

    async def chain(self, account: str, response_id: str) -> list[PastTurn]:
        """Return a response and those before it, the oldest first.

        Raises:
            TurnMissing: it is not there, or one before it was deleted.
            TurnUnfinished: it is still running.
        """
        ...

    async def delete(self, account: str, response_id: str) -> bool:
        """Destroy a response; return whether there was one."""
        ...

    async def find_items(self, account: str, item_ids: Sequence[str]) -> dict[str, Item]:
        """Return those of the items that are there, by id, from responses and conversations."""
        ...

    async def find_runs(self, account: str, item_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return what tools of the service were asked and answered, by the ids of their items, where that is there."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
    """What somebody who follows a background response gets: the events after some number, and whether more follow."""

    events: list[bytes]
    is_running: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """A background response whose runner is gone: to be run by whoever claimed it.

    `job` is what `start` was given; `events` and `journal` are what was written, in order.
    """

    account: str
    turn: StoredTurn
    job: Item
    epoch: int
    events: list[bytes]
    journal: list[bytes]
    is_cancelled: bool


class BackgroundResponses(Protocol):
    """Responses that run in the background, each under a lease of whoever runs it."""

    async def start(
        self,
        account: str,
        turn: StoredTurn,
        job: Item,
        *,
        events: Sequence[bytes],
        expires_at: float,
        lease_s: float,
    ) -> int:
        """Keep a response that begins; return the epoch under which the caller runs it."""
        ...

    async def append(
        self,
        account: str,
        response_id: str,
        epoch: int,
        events: Sequence[bytes],
        *,
        journal: Sequence[bytes] = (),
        status: str,
        lease_s: float,
    ) -> bool:
        """Keep more events, which may be none, and the lease; return whether the response is to be cancelled.

        `journal` is what whoever takes over must know beside the events, kept with them until the end; JSON without
        line breaks. Without events there is none.

        Raises:
            LeaseLost: another epoch has begun, or the response is gone.
        """
        ...

    async def finish(
        self,
        account: str,
        turn: StoredTurn,
        epoch: int,
        events: Sequence[bytes],
        *,
        conversation_id: str | None = None,
    ) -> None:
        """Keep the last events and the finished response.

        Raises:
            LeaseLost: as `append`.
        """
        ...

    async def follow(self, account: str, response_id: str, after: int) -> Followed | None:
        """Return the events numbered above `after`, None if they were not kept."""
        ...

    async def cancel(self, account: str, response_id: str) -> bool:
        """Ask for a response to be cancelled; return whether it was running."""
        ...

    async def release(self, response_id: str, epoch: int) -> None:
        """Let the lease go now, so that somebody else takes over at once."""
        ...

    async def claim(self, lease_s: float) -> Claimed | None:
        """Take over a response whose lease has lapsed, None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its items. `created_at` is in Unix seconds."""

    id: str
    created_at: int
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, and whether there is more of it."""

    items: list[Item]
    has_more: bool


class Conversations(Protocol):
    """Conversations and their items."""

    async def create(
        self, account: str, metadata: dict[str, str], items: Sequence[Item], *, expires_at: float
    ) -> Conversation:
        """Make a conversation with its first items."""
        ...

    async def load(self, account: str, conversation_id: str) -> Conversation | None:
        """Return a conversation."""
        ...

    async def update(self, account: str, conversation_id: str, metadata: dict[str, str]) -> Conversation | None:
        """Replace the metadata; return the conversation."""
        ...

    async def delete(self, account: str, conversation_id: str) -> bool:
        """Destroy a conversation and its items; return whether there was one."""
        ...

    async def add_items(
        self, account: str, conversation_id: str, items: Sequence[Item], *, expires_at: float
    ) -> list[Item]:
        """Add items at the end; return them as they are kept, an id that is taken already replaced.

        Raises:
            ConversationMissing: there is no such conversation.
        """
        ...

    async def all_items(self, account: str, conversation_id: str) -> list[Item]:
        """Return every item, the oldest first.

        Raises:
            ConversationMissing: there is no such conversation.
        """
        ...

    async def list_items(
        self, account: str, conversation_id: str, *, limit: int, is_ascending: bool, after: str | None
    ) -> Page:
        """Return up to `limit` items beyond the item `after`.

        Raises:
            ConversationMissing: there is no such conversation.
            KeyError: `after` names no item of it.
        """
        ...

    async def delete_item(self, account: str, conversation_id: str, item_id: str) -> bool:
        """Destroy an item; return whether there was one.

        Raises:
            ConversationMissing: there is no such conversation.
        """
        ...

    async def load_item(self, account: str, conversation_id: str, item_id: str) -> Item | None:
        """Return an item.

        Raises:
            ConversationMissing: there is no such conversation.
        """
        ...
