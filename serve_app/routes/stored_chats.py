"""Stored chat completions: list, retrieve, update, delete; their messages."""

from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from deployments.state.responses.chats import ChatMissing, ChatStore, StoredChat
from deployments.state.responses.values import MAX_READ_BYTES, TooMuchToRead
from serve_app.errors.api import NotFound, invalid_value, shorten
from serve_app.routes.endpoint import Deleted, answers, caller, deleted_response, json_response, services_of
from serve_app.routes.paging import Page, cut_page, list_to_wire, page_of, parse_query, unknown_after
from serve_app.schemas.base import Metadata, PageQuery, WireModel
from serve_app.validation.body import parse_body

_COMPLETION = "openai.types.chat.ChatCompletion"


class OldestFirst(PageQuery):
    """The query of a list in pages: oldest first, unless `order` is "desc".

    Args:
        order: `asc` for oldest first, `desc` for newest first.
    """

    order: Literal["asc", "desc"] = "asc"


class StoredChatsQuery(OldestFirst):
    """The query of a list of stored chat completions.

    Args:
        model: only those of this model, as they name it.
        metadata: only those that have all of these pairs, written `metadata[key]=value`.
    """

    model: Annotated[str, Field(max_length=256)] | None = None
    metadata: Metadata | None = None


class ChatCompletionChange(WireModel):
    """New metadata of a chat completion.

    Args:
        metadata: the new metadata, which replaces all of the old.
    """

    example: ClassVar[dict[str, Any]] = {"metadata": {"topic": "names"}}

    metadata: Metadata | None


@answers(Page, of=_COMPLETION, query=StoredChatsQuery)
async def list_chat_completions(request: Request) -> Response:
    """List stored chat completions.

    Those that were created with `store`, narrowed by model and metadata.
    """
    principal, store = await _caller(request)
    query = parse_query(request, StoredChatsQuery)
    try:
        chats, has_more = await store.list_chats(
            principal.account, page_of(query), model=query.model, metadata=query.metadata
        )
    except ChatMissing as missing:
        raise unknown_after(missing.completion_id) from None
    except TooMuchToRead:
        raise invalid_value(
            f"Invalid 'limit': these chat completions hold more than {MAX_READ_BYTES // 2**20} MiB together. Send a "
            "smaller one.",
            "limit",
        ) from None
    return json_response(list_to_wire([_to_wire(chat) for chat in chats], has_more=has_more))


@answers(_COMPLETION)
async def retrieve_chat_completion(request: Request) -> Response:
    """Retrieve a stored chat completion."""
    principal, store = await _caller(request)
    return json_response(_to_wire(_found(request, await store.load(principal.account, _id_in(request)))))


@answers(_COMPLETION, body=ChatCompletionChange)
async def update_chat_completion(request: Request) -> Response:
    """Update a stored chat completion.

    Replaces its metadata.
    """
    principal, store = await _caller(request)
    body = await parse_body(await request.body(), ChatCompletionChange)
    changed = await store.update(principal.account, _id_in(request), body.metadata or {})
    return json_response(_to_wire(_found(request, changed)))


@answers(Deleted)
async def delete_chat_completion(request: Request) -> Response:
    """Delete a stored chat completion.

    Its messages are deleted, too.
    """
    principal, store = await _caller(request)
    if not await store.delete(principal.account, _id_in(request)):
        raise _unknown(request)
    return deleted_response(_id_in(request), "chat.completion.deleted")


class StoredMessage(TypedDict):
    """A message of a stored chat completion. The `openai` package's type has only those of assistants.

    Of a message in parts, `content` is the text.
    """

    id: str
    role: str
    content: str | None
    content_parts: list[dict[str, Any]] | None
    name: str | None
    refusal: str | None
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]


@answers(Page[StoredMessage], query=OldestFirst)
async def list_chat_messages(request: Request) -> Response:
    """List the messages of a stored chat completion.

    Those of its request, without the answer.
    """
    principal, store = await _caller(request)
    query = parse_query(request, OldestFirst)
    messages = await store.load_messages(principal.account, _id_in(request))
    if messages is None:
        raise _unknown(request)
    page, has_more = cut_page(messages, query, lambda message: message["id"])
    return json_response(list_to_wire(page, has_more=has_more))


async def _caller(request: Request) -> tuple[Principal, ChatStore]:
    principal = await caller(request, Operation.CHAT)
    return principal, services_of(request).operations.responses.storage.chats


def _id_in(request: Request) -> str:
    completion_id: str = request.path_params["completion_id"]
    return completion_id


def _found(request: Request, chat: StoredChat | None) -> StoredChat:
    if chat is None:
        raise _unknown(request)
    return chat


def _unknown(request: Request) -> NotFound:
    return NotFound(
        f"Chat completion with id '{shorten(_id_in(request))}' not found. Only those that were created with "
        "'store': true are kept, until they expire."
    )


def _to_wire(chat: StoredChat) -> dict[str, Any]:
    return {**chat.completion, "metadata": chat.metadata}
