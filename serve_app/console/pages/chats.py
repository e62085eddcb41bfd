"""The account's stored chat completions: listed, shown with what was asked, deleted."""

from typing import Any
from urllib.parse import quote

import orjson
from starlette.responses import Response

from deployments.state.database.queries import Page
from deployments.state.responses.chats import ChatMissing, ChatStore, StoredChat
from deployments.state.responses.values import TooMuchToRead
from serve_app.console.visit import Visit, may_read_usage, redirect
from serve_app.errors.api import BadRequest, NotFound

_PAGE_SIZE = 50
_TOO_LARGE = "These chats are too large to be listed together. Open one by its id, or list fewer with the API."
_NO_CHAT = "This account has no such chat completion, or it has expired."


async def list_chats(visit: Visit) -> Response:
    """Show the stored chats, newest first; an `id` that is asked for leads to its page."""
    if visit.query("id").strip():
        return redirect(f"/console/chats/{quote(visit.query('id').strip(), safe='')}")
    try:
        chats, has_more = await _store(visit).list_chats(visit.account, Page(_PAGE_SIZE, after=visit.after))
    except ChatMissing:
        raise NotFound(_NO_CHAT) from None
    except TooMuchToRead:
        raise BadRequest(_TOO_LARGE) from None
    return visit.page("chats.html", chats=chats, first_words=_first_words, more=chats[-1].id if has_more else "")


async def show_chat(visit: Visit) -> Response:
    """Show the messages of a stored chat, and its answer."""
    completion_id = visit.request.path_params["completion_id"]
    chat = await _store(visit).load(visit.account, completion_id)
    asked = await _store(visit).load_messages(visit.account, completion_id)
    if chat is None or asked is None:
        raise NotFound(_NO_CHAT)
    answers = [choice["message"] for choice in chat.completion["choices"]]
    said = [one for message in (*asked, *answers) for one in _said(message)]
    request_id = chat.completion.get("request_id") if may_read_usage(visit.principal) else None
    return visit.page("chat.html", chat=chat, said=said, request_id=request_id)


async def delete_chat(visit: Visit) -> Response:
    """Delete a stored chat, with its messages."""
    if not await _store(visit).delete(visit.account, visit.request.path_params["completion_id"]):
        raise NotFound(_NO_CHAT)
    return redirect("/console/chats?done=deleted")


def _store(visit: Visit) -> ChatStore:
    return visit.services.operations.responses.storage.chats


def _first_words(chat: StoredChat) -> str:
    return next((one["text"] for choice in chat.completion["choices"] for one in _said(choice["message"])), "")


def _said(message: dict[str, Any]) -> list[dict[str, str]]:
    """Return the parts of a message that a page shows: its reasoning, its text, its calls."""
    said = []
    if message.get("reasoning"):
        said.append({"who": "reasoning", "text": message["reasoning"]})
    who = "answer of a function" if message["role"] in ("tool", "function") else message["role"]
    text = message.get("content") or message.get("refusal")
    if isinstance(text, list):
        text = orjson.dumps(text).decode()
    for part in message.get("content_parts") or ():
        if part["type"] != "text":
            text = f"{text or ''}\n[{part['type']}]"
    if text:
        said.append({"who": who, "text": text})
    for call in message.get("tool_calls") or ():
        called = call.get("function") or call.get("custom") or {}
        said.append(
            {"who": f"calls {called.get('name')}", "text": called.get("arguments") or called.get("input") or ""}
        )
    return said
