"""The responses interface and conversations, as the OpenAPI document tells of them."""

from typing import Any

from pydantic import BaseModel

from serve_app.routes.openapi_parts import in_path, list_of, operation, wire_object
from serve_app.schemas.conversations import ConversationChange, NewConversation, NewConversationItems
from serve_app.schemas.responses import CompactRequest, InputTokensRequest, ResponseRequest

RESPONSE_BODIES: tuple[type[BaseModel], ...] = (
    ResponseRequest,
    InputTokensRequest,
    CompactRequest,
    NewConversation,
    ConversationChange,
    NewConversationItems,
)
PAGE: list[dict[str, Any]] = [
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    },
    {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"], "default": "desc"}},
    {"name": "after", "in": "query", "schema": {"type": "string"}},
]
_STREAM: list[dict[str, Any]] = [
    {"name": "stream", "in": "query", "schema": {"type": "boolean", "default": False}},
    {"name": "starting_after", "in": "query", "schema": {"type": "integer", "minimum": 0}},
]
_RESPONSE = "/v1/responses/{response_id}"
_CONVERSATION = "/v1/conversations/{conversation_id}"


def response_paths() -> dict[str, Any]:
    """Return the paths of responses and conversations."""
    response = [in_path("response_id")]
    retrieve = operation(
        "Return a stored response, or its events", "Response", streams=True, parameters=response + _STREAM
    )
    return {
        "/v1/responses": {"post": operation("Create a response", "Response", ResponseRequest, streams=True)},
        "/v1/responses/input_tokens": {
            "post": operation("Count the tokens of a prompt", "InputTokens", InputTokensRequest)
        },
        "/v1/responses/compact": {"post": operation("Compact a conversation", "Compaction", CompactRequest)},
        _RESPONSE: {
            "get": retrieve,
            "delete": operation("Destroy a stored response", "Deleted", parameters=response),
        },
        _RESPONSE + "/cancel": {"post": operation("Cancel a background response", "Response", parameters=response)},
        _RESPONSE + "/input_items": {
            "get": operation("List the items of a response's request", "ItemList", parameters=response + PAGE)
        },
        **_conversation_paths(),
    }


def _conversation_paths() -> dict[str, Any]:
    conversation = [in_path("conversation_id")]
    item = [*conversation, in_path("item_id")]
    return {
        "/v1/conversations": {"post": operation("Create a conversation", "Conversation", NewConversation)},
        _CONVERSATION: {
            "get": operation("Return a conversation", "Conversation", parameters=conversation),
            "post": operation(
                "Replace a conversation's metadata", "Conversation", ConversationChange, parameters=conversation
            ),
            "delete": operation("Destroy a conversation and its items", "Deleted", parameters=conversation),
        },
        _CONVERSATION + "/items": {
            "get": operation("List a conversation's items", "ItemList", parameters=conversation + PAGE),
            "post": operation("Add items to a conversation", "ItemList", NewConversationItems, parameters=conversation),
        },
        _CONVERSATION + "/items/{item_id}": {
            "get": operation("Return an item of a conversation", "Item", parameters=item),
            "delete": operation("Destroy an item of a conversation", "Conversation", parameters=item),
        },
    }


def response_schemas() -> dict[str, Any]:
    """Return the schemas of what these paths answer with."""
    text, number = {"type": "string"}, {"type": "integer"}
    maybe_text = {"type": ["string", "null"]}
    status = {"enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]}
    items = {"type": "array", "items": {"$ref": "#/components/schemas/Item"}}
    usage = wire_object(input_tokens=number, output_tokens=number, total_tokens=number)
    head = {"id": text, "created_at": number}
    return {
        "Item": wire_object(id=text, type=text),
        "ItemList": list_of("Item", first_id=maybe_text, last_id=maybe_text, has_more={"type": "boolean"}),
        "Response": wire_object(
            **head,
            object={"const": "response"},
            model=text,
            status=status,
            output=items,
            usage={"anyOf": [usage, {"type": "null"}]},
        ),
        "InputTokens": wire_object(object={"const": "response.input_tokens"}, input_tokens=number),
        "Compaction": wire_object(**head, object={"const": "response.compaction"}, output=items, usage=usage),
        "Conversation": wire_object(**head, object={"const": "conversation"}, metadata={"type": "object"}),
    }
