"""/v1/responses: create, retrieve, delete, cancel, input items, input tokens, compact."""

from collections.abc import AsyncIterator
from typing import Any, Generic, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from deployments.state.identity.principal import Principal
from deployments.state.responses.values import Item, StoredTurn
from serve_app.errors.api import BadRequest, NotFound, invalid_value, shorten
from serve_app.http.admission import Ticket
from serve_app.http.departure import while_connected
from serve_app.http.sse import OutcomeResponse
from serve_app.operations.contract import Outcome
from serve_app.operations.responses.events.writer import DONE, frame, new_id, usage_from_wire
from serve_app.operations.responses.operation import PromptQuery, ResponseOperation
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.replay import replay
from serve_app.operations.service_tiers import find_terms
from serve_app.routes.endpoint import (
    Deleted,
    admitted,
    answers,
    caller,
    deleted_response,
    json_response,
    read_body,
    reserve,
    services_of,
    trace_of,
)
from serve_app.routes.paging import Page, cut_page, list_to_wire, parse_query
from serve_app.schemas.base import PageQuery
from serve_app.schemas.responses.request import CompactRequest, InputTokensRequest, ResponseQuery, ResponseRequest
from serve_app.telemetry.trace import RequestTrace
from serve_app.validation.body import Sent

KeptItem = TypeVar("KeptItem")

_STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


@answers("openai.types.responses.Response", body=ResponseRequest, events="openai.types.responses.ResponseStreamEvent")
async def create_response(request: Request) -> ASGIApp:
    """Create a response.

    Returns it as one object, as server-sent events with `stream`, or at once with `background`.
    """
    services, trace = services_of(request), trace_of(request)
    operation = services.operations.responses
    async with admitted(request, operation.name) as (principal, ticket):
        body, sent = await read_body(request, ResponseRequest)
        terms = find_terms(body, principal, services.tiers)
        stored = await operation.preparation.find_stored(body, principal, trace.request_id)
        if stored is not None:
            trace.model, trace.stream = stored.response["model"], body.is_stream
            trace.service_tier, trace.token_weight = terms
            return _answer_again(request, stored, principal)
        turn = await operation.preparation.begin(body, sent, principal, request_id=trace.request_id, **terms.options)
        chat = operation.first_chat(turn)
        trace.stream = body.is_stream
        await reserve(ticket, trace, operation.cost_of_turn(turn, chat), terms)
        if body.background:
            return await _start(request, turn, sent, ticket)
        answer = operation.answer(turn, chat, lambda: _note_failure(trace))
        return OutcomeResponse(Outcome(answer, body.is_stream), ticket.detach(), trace, services.silence)


def _note_failure(trace: RequestTrace) -> None:
    """Record a failure that became known after the status was sent."""
    trace.status, trace.code = 500, "server_error"


def _answer_again(request: Request, turn: StoredTurn, principal: Principal) -> Response:
    """Answer a request that the front has repeated after another replica stored its response.

    A background response is logged where it ends. Any other is logged here too, under the same request id: the other
    replica may have died before it did.
    """
    trace, is_stream = trace_of(request), trace_of(request).stream
    if turn.response["background"]:
        trace.is_repeated = True
        return (
            _stream(_live_frames(request, principal.account, turn.id, -1))
            if is_stream
            else json_response(turn.response)
        )
    trace.usage = usage_from_wire(turn.response["usage"])
    if not is_stream:
        return json_response(turn.response)
    return _stream(_frames(replay(turn)))


async def _start(request: Request, turn: Turn, sent: Sent, ticket: Ticket) -> Response:
    """Start a background response; answer with its object, or with its events while the client stays."""
    is_stream = turn.request.is_stream
    response = await services_of(request).background.start(turn, sent.raw, ticket.settle, trace_of(request))
    ticket.detach().leave_place()
    if is_stream:
        return _stream(_live_frames(request, turn.principal.account, response["id"], -1))
    return json_response(response)


@answers("openai.types.responses.Response", query=ResponseQuery, events="openai.types.responses.ResponseStreamEvent")
async def retrieve_response(request: Request) -> Response:
    """Retrieve a response.

    Returns a stored response; with `stream`, its events, including those still to come.
    """
    turn, principal = await _stored(request)
    query = parse_query(request, ResponseQuery)
    if not query.stream:
        if query.starting_after is not None:
            raise invalid_value(
                "The 'starting_after' parameter is only allowed when 'stream' is enabled.", "starting_after"
            )
        return json_response(turn.response)
    after = -1 if query.starting_after is None else query.starting_after
    if turn.response["background"]:
        followed = await services_of(request).background.count_events(principal.account, turn.id)
        _check_after(after, followed)
        return _stream(_live_frames(request, principal.account, turn.id, after))
    events = replay(turn)
    _check_after(after, len(events))
    return _stream(_frames(events[after + 1 :]))


def _check_after(after: int, num_events: int) -> None:
    if after >= num_events or after < -1:
        raise invalid_value(
            f"Invalid 'starting_after': there is no event with the sequence number {after}. The last one is "
            f"{num_events - 1}.",
            "starting_after",
        )


async def _live_frames(request: Request, account: str, response_id: str, after: int) -> AsyncIterator[bytes]:
    async for event in services_of(request).background.follow(account, response_id, after):
        yield frame(event)
    yield DONE


async def _frames(events: list[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield frame(event)
    yield DONE


def _stream(frames: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(frames, media_type="text/event-stream", headers=_STREAM_HEADERS)


@answers(Deleted)
async def delete_response(request: Request) -> Response:
    """Delete a response.

    One that runs in the background is cancelled.
    """
    principal, operation = await _caller(request)
    response_id: str = request.path_params["response_id"]
    if not await operation.storage.responses.delete(principal.account, response_id):
        raise _unknown(response_id)
    return deleted_response(response_id, "response")


@answers("openai.types.responses.Response")
async def cancel_response(request: Request) -> Response:
    """Cancel a background response.

    One that is already cancelled is returned as it is.
    """
    turn, principal = await _stored(request)
    status = turn.response["status"]
    if not turn.response["background"]:
        raise BadRequest("Cannot cancel a synchronous response. Only background responses can be cancelled.")
    if status in ("queued", "in_progress"):
        await services_of(request).background.cancel(principal.account, turn.id)
        turn, _ = await _stored(request)
    elif status != "cancelled":
        raise BadRequest(f"Cannot cancel a response with status '{status}'.")
    return json_response(turn.response)


@answers(Page, of="openai.types.responses.ResponseItem", query=PageQuery)
async def list_input_items(request: Request) -> Response:
    """List the input items of a response."""
    query = parse_query(request, PageQuery)
    turn, _ = await _stored(request)
    items, has_more = cut_page(turn.input, query, lambda item: item["id"])
    return json_response(list_to_wire(items, has_more=has_more))


@answers("openai.types.responses.InputTokenCountResponse", body=InputTokensRequest)
async def count_input_tokens(request: Request) -> Response:
    """Count the tokens of an input.

    Nothing is generated.
    """
    operation = services_of(request).operations.responses
    async with admitted(request, operation.name) as (principal, ticket):
        body, sent = await read_body(request, InputTokensRequest)
        query = await operation.queries.count_tokens(body, sent, principal, request_id=trace_of(request).request_id)
        usage = await _run(query, request, ticket)
    return json_response({"object": "response.input_tokens", "input_tokens": usage["input_tokens"]})


class Compaction(TypedDict, Generic[KeptItem]):
    """A shorter conversation. The `openai` package's type has no user messages."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[KeptItem]
    usage: dict[str, Any]


@answers(Compaction, of="openai.types.responses.ResponseItem", body=CompactRequest)
async def compact_response(request: Request) -> Response:
    """Compact a conversation.

    Returns the user's messages and an encrypted summary of the rest, to be sent as the next input.
    """
    operation = services_of(request).operations.responses
    async with admitted(request, operation.name) as (principal, ticket):
        body, sent = await read_body(request, CompactRequest)
        request_id = trace_of(request).request_id
        query, items = await operation.queries.summarize(body, sent, principal, request_id=request_id)
        usage = await _run(query, request, ticket)
    output = await operation.queries.compact(items, query.text, principal)
    created_at = int(operation.storage.clock())
    head = {"id": new_id("resp"), "object": "response.compaction", "created_at": created_at}
    return json_response({**head, "output": output, "usage": usage})


async def _run(query: PromptQuery, request: Request, ticket: Ticket) -> Item:
    trace = trace_of(request)
    await reserve(ticket, trace, query.cost)
    try:
        return await while_connected(request.receive, query.run())
    finally:
        trace.usage = query.stream.summary.usage
        ticket.settle(trace.usage)


async def _caller(request: Request) -> tuple[Principal, ResponseOperation]:
    operation = services_of(request).operations.responses
    return await caller(request, operation.name), operation


async def _stored(request: Request) -> tuple[StoredTurn, Principal]:
    principal, operation = await _caller(request)
    response_id: str = request.path_params["response_id"]
    turn = await operation.storage.responses.load(principal.account, response_id)
    if turn is None:
        raise _unknown(response_id)
    return turn, principal


def _unknown(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{shorten(response_id)}' not found.")
