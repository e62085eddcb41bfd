"""Reads the items of a prompt: the conversation that a request continues, its own input, and the files in both.

Every reference is resolved, or the request is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from deployments.state.encryption.vault import AccountTokens
from deployments.state.identity.principal import Principal
from deployments.state.responses.values import (
    MAX_READ_BYTES,
    ConversationMissing,
    Item,
    TooMuchToRead,
    TurnMissing,
    TurnUnfinished,
)
from deployments.steps import STORAGE, step
from serve_app.errors.api import BadRequest, NotFound, RetentionForbids, UnknownPreviousResponse, invalid_value, shorten
from serve_app.operations.responses.prompt.attachments import Attachments
from serve_app.operations.responses.prompt.history import History, Message, ServerRun
from serve_app.operations.responses.prompt.turn import PastConversation
from serve_app.operations.responses.storage import Storage, items_of
from serve_app.schemas.responses.items import COMPACTION_TRIGGER
from serve_app.schemas.responses.request import CompactRequest, PromptedRequest
from serve_app.schemas.responses.tools import BUILT_IN_ITEMS
from serve_app.validation.body import Sent

_UNREADABLE = "[What was said before was compacted by another service, and cannot be read here.]"
_SEALED = frozenset({"reasoning", "compaction"})
"""The items whose content the service seals. Those of other tools have fields of their own."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The items of a prompt: earlier ones, then the request's own, from `own_from` on.

    `shown` are the same items with their files read.
    """

    items: list[Item]
    own_from: int
    shown: list[Item]
    runs: dict[str, ServerRun] = field(default_factory=dict)

    @property
    def before(self) -> "PastConversation":
        """The conversation before the request."""
        return PastConversation(self.items[: self.own_from], self.runs)

    @property
    def own(self) -> list[Item]:
        """The request's own items, in stored form."""
        return self.items[self.own_from :]

    def messages(self, instructions: str | None, *, may_wait: bool = False) -> list[Message]:
        """Return the messages of the chat. Raises BadRequest if calls and their outputs do not match."""
        return History(self.shown, self.own_from, self.runs).messages(instructions, may_wait=may_wait)


@dataclass(frozen=True, slots=True)
class RememberedResponse:
    """A response and the conversation before it, which a WebSocket remembers for the next request."""

    response_id: str
    items: list[Item]
    runs: dict[str, ServerRun]


class PromptReader:
    """Reads prompts from requests and their stored conversations."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def read(
        self,
        request: PromptedRequest | CompactRequest,
        sent: Sent,
        principal: Principal,
        remembered: RememberedResponse | None = None,
    ) -> Prompt:
        """Return the items of a request's prompt. Raises ApiError if it refers to what is missing or not allowed."""
        conversation_id = request.conversation_id if isinstance(request, PromptedRequest) else None
        before: list[Item] = []
        runs: dict[str, ServerRun] = {}
        if remembered is not None and request.previous_response_id == remembered.response_id:
            # Those that were opened before stay so: each item is opened once.
            before = await self._opened(principal.account, remembered.items)
            runs = remembered.runs
        elif principal.retention == "strict":
            _refuse_stored(request.previous_response_id, conversation_id)
        elif request.previous_response_id is not None:
            before, runs = await self._chain(principal.account, request.previous_response_id)
        elif conversation_id is not None:
            before = await self._conversation(principal.account, conversation_id)
        own = [item for item in items_of(sent.value.get("input")) if item["type"] != COMPACTION_TRIGGER]
        items = [*before, *await self.resolve(principal, own)]
        brought_by = "conversation" if conversation_id is not None else "previous_response_id"
        shown = await Attachments(self._storage.files, principal).show(items, len(before), brought_by)
        return Prompt(items, len(before), shown, await self._with_runs(principal, items, runs))

    async def _with_runs(
        self, principal: Principal, items: Sequence[Item], runs: dict[str, ServerRun]
    ) -> dict[str, ServerRun]:
        """Return the runs; add the stored run of each call that came without one, from a conversation or a client."""
        called = [item["id"] for item in items if item["type"] in BUILT_IN_ITEMS]
        missing = [item_id for item_id in called if item_id not in runs]
        if not missing or principal.retention == "strict":
            return runs
        try:
            found = await self._storage.responses.find_runs(principal.account, missing)
        except TooMuchToRead:
            raise _too_large("input") from None
        return runs | {item_id: ServerRun(*run) for item_id, run in found.items()}

    async def _chain(self, account: str, response_id: str) -> tuple[list[Item], dict[str, ServerRun]]:
        try:
            with step(STORAGE):
                turns = await self._storage.responses.chain(account, response_id)
        except TurnMissing as missing:
            raise UnknownPreviousResponse(missing.response_id) from None
        except TurnUnfinished:
            raise invalid_value(
                f"Previous response with id '{shorten(response_id)}' is still in progress. Wait until it has ended.",
                "previous_response_id",
            ) from None
        except TooMuchToRead:
            raise _too_large("previous_response_id") from None
        runs = {item_id: ServerRun(*run) for turn in turns for item_id, run in turn.runs.items()}
        return await self._opened(account, [item for turn in turns for item in turn.items]), runs

    async def _conversation(self, account: str, conversation_id: str) -> list[Item]:
        try:
            items = await self._storage.conversations.all_items(account, conversation_id)
        except ConversationMissing:
            raise NotFound(
                f"Conversation with id '{shorten(conversation_id)}' not found.", param="conversation"
            ) from None
        except TooMuchToRead:
            raise _too_large("conversation") from None
        return await self._opened(account, items)

    async def resolve(self, principal: Principal, items: Sequence[Item], name: str = "input") -> list[Item]:
        """Return items with references resolved and compactions opened.

        Raises:
            NotFound: there is no such item.
            BadRequest: the items are too large.
        """
        wanted = [item["id"] for item in items if item["type"] == "item_reference"]
        found: dict[str, Item] = {}
        if wanted and principal.retention != "strict":
            try:
                found = await self._storage.responses.find_items(principal.account, wanted)
            except TooMuchToRead:
                raise _too_large(name) from None
            sizes = {item_id: len(orjson.dumps(item)) for item_id, item in found.items()}
            if sum(sizes.get(item_id, 0) for item_id in wanted) > MAX_READ_BYTES:
                raise _too_large(name)
        resolved = []
        for index, item in enumerate(items):
            if item["type"] == "item_reference":
                if item["id"] not in found:
                    raise NotFound(
                        f"Item with id '{shorten(item['id'])}' not found. Items are not persisted when 'store' is set "
                        "to false. Send the item itself instead.",
                        param=f"{name}[{index}].id",
                    )
                item = found[item["id"]]
            resolved.append(item)
        return await self._opened(principal.account, resolved)

    async def _opened(self, account: str, items: Sequence[Item]) -> list[Item]:
        """Return items with their sealed content opened for the model."""
        if not any(map(_is_sealed, items)):
            return list(items)
        tokens = await self._storage.sealer.of(account)
        return [_open(item, tokens) if _is_sealed(item) else item for item in items]


def _is_sealed(item: Item) -> bool:
    """Return whether an item has content that is only readable once it is opened."""
    if item["type"] not in _SEALED or item.get("encrypted_content") is None:
        return False
    return item["type"] == "compaction" or not item.get("content")


def _open(item: Item, tokens: AccountTokens) -> Item:
    """Return an item with its sealed content.

    Agents bring conversations from other services. What was not sealed here is left out, and of reasoning the summary
    stays.
    """
    text = tokens.open(item["encrypted_content"])
    if item["type"] == "compaction":
        return {**item, "text": _UNREADABLE if text is None else text}
    if text is None:
        return {name: value for name, value in item.items() if name != "encrypted_content"}
    return {**item, "content": [{"type": "reasoning_text", "text": text}]}


def _too_large(param: str) -> BadRequest:
    return BadRequest(
        f"Invalid '{param}': what it refers to is too large, more than {MAX_READ_BYTES // 2**20} MiB. Refer to less.",
        param=param,
        code="context_length_exceeded",
    )


def _refuse_stored(previous_response_id: str | None, conversation_id: str | None) -> None:
    if previous_response_id is not None:
        raise RetentionForbids("continuing from a stored response", "previous_response_id")
    if conversation_id is not None:
        raise RetentionForbids("conversations, which are stored", "conversation")
