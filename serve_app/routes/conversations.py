"""Conversations: create, retrieve, update, delete; their items: list, add, retrieve, delete."""

from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from deployments.state.identity.principal import Principal
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.values import Conversation, ConversationMissing, Item
from serve_app.errors.api import NotFound, RetentionForbids, shorten
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.routes.endpoint import Deleted, answers, caller, deleted_response, json_response, services_of
from serve_app.routes.paging import Page, list_to_wire, parse_query, unknown_after
from serve_app.schemas.base import Metadata, PageQuery, WireModel
from serve_app.schemas.responses.items import InputItem
from serve_app.validation.body import parse_body

MAX_NEW_ITEMS = 20
NewItems = Annotated[list[InputItem], Field(fail_fast=True, max_length=MAX_NEW_ITEMS)]


class NewConversation(WireModel):
    """A conversation to be created, with its first items.

    Args:
        items: the first items, such as messages.
    """

    example: ClassVar[dict[str, Any]] = {"items": [{"role": "user", "content": "My name is Ada."}]}

    items: NewItems | None = None
    metadata: Metadata | None = None


class ConversationChange(WireModel):
    """New metadata of a conversation.

    Args:
        metadata: the new metadata, which replaces all of the old.
    """

    example: ClassVar[dict[str, Any]] = {"metadata": {"topic": "names"}}

    metadata: Metadata | None


class NewConversationItems(WireModel):
    """Items to be added to a conversation.

    Args:
        items: the items to add, such as messages.
    """

    example: ClassVar[dict[str, Any]] = {"items": [{"role": "user", "content": "My name is Ada."}]}

    items: Annotated[list[InputItem], Field(fail_fast=True, min_length=1, max_length=MAX_NEW_ITEMS)]


Body = TypeVar("Body", bound=BaseModel)


@answers("openai.types.conversations.Conversation", body=NewConversation)
async def create_conversation(request: Request) -> Response:
    """Create a conversation."""
    principal, operation, store = await _caller(request)
    expires_at = _expires_at(principal, operation)
    raw = await request.body()
    body = await parse_body(raw or b"{}", NewConversation)
    items = await _items(body, principal, operation)
    max_objects = services_of(request).tiers.of(principal.tier).stored_objects
    async with operation.storage.item_quota.take(principal, len(raw)):
        created = await store.create(
            principal.account, body.metadata or {}, items, expires_at=expires_at, max_objects=max_objects
        )
    return json_response(_to_wire(created))


@answers("openai.types.conversations.Conversation")
async def retrieve_conversation(request: Request) -> Response:
    """Retrieve a conversation."""
    principal, _, store = await _caller(request)
    return json_response(_to_wire(await _load(request, principal, store)))


@answers("openai.types.conversations.Conversation", body=ConversationChange)
async def update_conversation(request: Request) -> Response:
    """Update a conversation.

    Replaces its metadata.
    """
    principal, _, store = await _caller(request)
    body = await parse_body(await request.body(), ConversationChange)
    conversation_id: str = request.path_params["conversation_id"]
    changed = await store.update(principal.account, conversation_id, body.metadata or {})
    if changed is None:
        raise _unknown(conversation_id)
    return json_response(_to_wire(changed))


@answers(Deleted)
async def delete_conversation(request: Request) -> Response:
    """Delete a conversation.

    Its items are deleted, too.
    """
    principal, _, store = await _caller(request)
    conversation_id: str = request.path_params["conversation_id"]
    if not await store.delete(principal.account, conversation_id):
        raise _unknown(conversation_id)
    return deleted_response(conversation_id, "conversation.deleted")


@answers(Page, of="openai.types.conversations.ConversationItem", query=PageQuery)
async def list_items(request: Request) -> Response:
    """List the items of a conversation."""
    query = parse_query(request, PageQuery)
    principal, _, store = await _caller(request)
    conversation_id: str = request.path_params["conversation_id"]
    try:
        items, has_more = await store.list_items(
            principal.account, conversation_id, limit=query.limit, is_ascending=query.is_ascending, after=query.after
        )
    except ConversationMissing:
        raise _unknown(conversation_id) from None
    except KeyError:
        raise unknown_after(query.after or "") from None
    return json_response(list_to_wire(items, has_more=has_more))


@answers(Page, of="openai.types.conversations.ConversationItem", body=NewConversationItems)
async def create_items(request: Request) -> Response:
    """Add items to a conversation.

    Returns the items as they are stored.
    """
    principal, operation, store = await _caller(request)
    raw = await request.body()
    body = await parse_body(raw, NewConversationItems)
    conversation_id: str = request.path_params["conversation_id"]
    items = await _items(body, principal, operation)
    expires_at = _expires_at(principal, operation)
    try:
        async with operation.storage.item_quota.take(principal, len(raw)):
            added = await store.add_items(principal.account, conversation_id, items, expires_at=expires_at)
    except ConversationMissing:
        raise _unknown(conversation_id) from None
    return json_response(list_to_wire(added, has_more=False))


@answers("openai.types.conversations.ConversationItem")
async def retrieve_item(request: Request) -> Response:
    """Retrieve an item of a conversation."""
    principal, _, store = await _caller(request)
    conversation_id, item_id = request.path_params["conversation_id"], request.path_params["item_id"]
    try:
        item = await store.load_item(principal.account, conversation_id, item_id)
    except ConversationMissing:
        raise _unknown(conversation_id) from None
    if item is None:
        raise _unknown_item(item_id)
    return json_response(item)


@answers("openai.types.conversations.Conversation")
async def delete_item(request: Request) -> Response:
    """Delete an item of a conversation.

    Returns the conversation.
    """
    principal, _, store = await _caller(request)
    item_id: str = request.path_params["item_id"]
    conversation = await _load(request, principal, store)
    if not await store.delete_item(principal.account, conversation.id, item_id):
        raise _unknown_item(item_id)
    return json_response(_to_wire(conversation))


async def _caller(request: Request) -> tuple[Principal, ResponseOperation, ConversationStore]:
    operation = services_of(request).operations.responses
    return await caller(request, operation.name), operation, operation.storage.conversations


def _expires_at(principal: Principal, operation: ResponseOperation) -> float:
    expires_at = operation.storage.expires_at(principal)
    if expires_at is None:
        raise RetentionForbids("conversations, which are stored")
    return expires_at


async def _load(request: Request, principal: Principal, store: ConversationStore) -> Conversation:
    conversation_id: str = request.path_params["conversation_id"]
    conversation = await store.load(principal.account, conversation_id)
    if conversation is None:
        raise _unknown(conversation_id)
    return conversation


async def _items(
    body: NewConversation | NewConversationItems, principal: Principal, operation: ResponseOperation
) -> list[Item]:
    given = [item.model_dump(exclude_none=True) for item in body.items or ()]
    return await operation.read_items(given, principal, "items")


def _to_wire(conversation: Conversation) -> Item:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": conversation.metadata,
    }


def _unknown(conversation_id: str) -> NotFound:
    return NotFound(f"Conversation with id '{shorten(conversation_id)}' not found.")


def _unknown_item(item_id: str) -> NotFound:
    return NotFound(f"Item with id '{shorten(item_id)}' not found.")
