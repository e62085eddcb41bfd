"""The account's stored responses and conversations: listed, shown, deleted."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from deployments.state.responses.values import ConversationMissing, Item, StoredTurn, TurnMissing
from serve_app.console.visit import Visit, may_read_usage, redirect
from serve_app.errors.api import NotFound
from serve_app.operations.responses.events.writer import request_id_of
from serve_app.operations.responses.prompt.outputs import agent_text
from serve_app.operations.responses.storage import Storage
from serve_app.routes import conversations, responses

_PAGE_SIZE = 50
_MAX_ITEMS = 200
_NO_RESPONSE = "This account has no such response."
_NO_CONVERSATION = "This account has no such conversation."


async def list_responses(visit: Visit) -> Response:
    """Show the responses, newest first, each below its predecessor; an `id` that is asked for leads to its page."""
    if visit.query("id").strip():
        return redirect(f"/console/responses/{quote(visit.query('id').strip(), safe='')}")
    try:
        turns, has_more = await _storage(visit).responses.list_turns(visit.account, _PAGE_SIZE, visit.after)
    except TurnMissing:
        raise NotFound(_NO_RESPONSE) from None
    more = turns[-1].id if has_more else ""
    asked_by = await _keys_of(visit, [turn.id for turn in turns])
    return visit.page("responses.html", trees=_trees(turns), first_words=_first_words, asked_by=asked_by, more=more)


async def show_response(visit: Visit) -> Response:
    """Show a response with its input and output items."""
    turn = await _storage(visit).responses.load(visit.account, visit.request.path_params["response_id"])
    if turn is None:
        raise NotFound(_NO_RESPONSE)
    said = [_said(item) for item in turn.items]
    asked_by = (await _keys_of(visit, [turn.id])).get(turn.id)
    request_id = request_id_of(turn.id) if may_read_usage(visit.principal) else None
    return visit.page("response.html", turn=turn, said=said, asked_by=asked_by, request_id=request_id)


async def delete_response(visit: Visit) -> Response:
    """Delete a response."""
    await visit.call(responses.delete_response)
    return redirect("/console/responses?done=deleted")


async def list_conversations(visit: Visit) -> Response:
    """Show the conversations, newest first; an `id` that is asked for leads to its page."""
    if visit.query("id").strip():
        return redirect(f"/console/conversations/{quote(visit.query('id').strip(), safe='')}")
    store = _storage(visit).conversations
    try:
        found, has_more = await store.list_conversations(visit.account, _PAGE_SIZE, visit.after)
    except ConversationMissing:
        raise NotFound(_NO_CONVERSATION) from None
    more = found[-1].id if has_more else ""
    firsts = await store.first_items(visit.account, [one.id for one in found])
    words = {conversation_id: _words_of([item]) for conversation_id, item in firsts.items()}
    return visit.page("conversations.html", conversations=found, words=words, more=more)


async def show_conversation(visit: Visit) -> Response:
    """Show a conversation with its items."""
    store, conversation_id = _storage(visit).conversations, visit.request.path_params["conversation_id"]
    conversation = await store.load(visit.account, conversation_id)
    if conversation is None:
        raise NotFound(_NO_CONVERSATION)
    try:
        items, has_more = await store.list_items(
            visit.account, conversation_id, limit=_MAX_ITEMS, is_ascending=True, after=None
        )
    except ConversationMissing:
        raise NotFound(_NO_CONVERSATION) from None
    said = [_said(item) for item in items]
    return visit.page("conversation.html", conversation=conversation, said=said, has_more=has_more)


async def delete_conversation(visit: Visit) -> Response:
    """Delete a conversation and its items."""
    await visit.call(conversations.delete_conversation)
    return redirect("/console/conversations?done=deleted")


def _storage(visit: Visit) -> Storage:
    return visit.services.operations.responses.storage


def _trees(turns: list[StoredTurn]) -> list[dict[str, Any]]:
    """Return the responses of a page as trees: each with its successors, the oldest first."""
    nodes: dict[str, dict[str, Any]] = {turn.id: {"turn": turn, "later": []} for turn in turns}
    roots = []
    for turn in turns:  # The newest first.
        before = nodes.get(turn.response.get("previous_response_id") or "")
        if before is None:
            roots.append(nodes[turn.id])
        else:
            before["later"].insert(0, nodes[turn.id])
    return roots


async def _keys_of(visit: Visit, response_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of the keys that asked for responses; only those that the request log still has."""
    if not may_read_usage(visit.principal):
        return {}
    requests = {request_id_of(response_id): response_id for response_id in response_ids}
    records = await visit.services.request_log.find_all(visit.account, list(requests))
    keys = await visit.services.keys.find_all(list({record.key_id for record in records.values() if record.key_id}))
    return {
        requests[request_id]: keys[record.key_id].name
        for request_id, record in records.items()
        if record.key_id in keys
    }


def _first_words(turn: StoredTurn) -> str:
    return _words_of(turn.items)


def _words_of(items: Sequence[Item]) -> str:
    """Return the text of the first message, "" if there is none; templates shorten it."""
    return next((said["text"] for item in items if item.get("type") == "message" and (said := _said(item))["text"]), "")


def _said(item: Item) -> dict[str, str]:
    match item.get("type"):
        case "message":
            parts = [part.get("text") or part.get("refusal") or f"[{part['type']}]" for part in item["content"]]
            return {"who": str(item.get("role")), "text": "\n".join(parts)}
        case "agent_message":
            return {"who": f"agent {item['author']}", "text": agent_text(item)}
        case "reasoning":
            parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
            return {
                "who": "reasoning",
                "text": "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict)),
            }
        case "function_call":
            return {"who": f"calls {item['name']}", "text": str(item.get("arguments", ""))}
        case "custom_tool_call":
            return {"who": f"calls {item['name']}", "text": str(item.get("input", ""))}
        case "function_call_output" | "custom_tool_call_output":
            return {"who": "answer of a function", "text": str(item.get("output", ""))}
        case kind:
            return {"who": str(kind).replace("_", " "), "text": str(item.get("status", ""))}
