"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's interface, for its clients and for coding agents."""

from typing import Any, Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from deployments.operations import Operation
from serve_app.http.departure import while_connected
from serve_app.http.sse import OutcomeResponse
from serve_app.operations.contract import Outcome
from serve_app.routes.endpoint import (
    admitted,
    answers,
    caller,
    json_response,
    read_body,
    reserve,
    services_of,
    trace_of,
)
from serve_app.schemas.anthropic.request import CountTokensRequest, MessagesRequest


class Message(TypedDict):
    """A message of the model."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    stop_sequence: str | None
    usage: dict[str, int]


class MessageEvent(TypedDict):
    """An event of a streamed message."""

    type: str


class TokenCount(TypedDict):
    """How many tokens a prompt has."""

    input_tokens: int


@answers(Message, body=MessagesRequest, events=MessageEvent)
async def create_message(request: Request) -> ASGIApp:
    """Create a message.

    Anthropic's Messages API. With `stream`, the answer comes as server-sent events while the model writes it.
    """
    services, trace = services_of(request), trace_of(request)
    operation = services.operations.messages
    async with admitted(request, Operation.CHAT) as (principal, ticket):
        body, _ = await read_body(request, MessagesRequest)
        prepared = operation.prepare(body, principal)
        trace.stream = body.is_stream
        await reserve(ticket, trace, prepared.cost)
        outcome = operation.run(prepared, principal, request_id=trace.request_id)
        return OutcomeResponse(outcome, ticket.detach(), trace, services.silence)


@answers(TokenCount, body=CountTokensRequest)
async def count_message_tokens(request: Request) -> Response:
    """Count the tokens of a message.

    Anthropic's Messages API. Nothing is generated.
    """
    principal = await caller(request, Operation.CHAT)
    body, _ = await read_body(request, CountTokensRequest)
    outcome = services_of(request).operations.messages.count(body, principal, request_id=trace_of(request).request_id)
    told = orjson.loads(await while_connected(request.receive, _whole(outcome)))
    return json_response({"input_tokens": told["count"]})


async def _whole(outcome: Outcome) -> bytes:
    try:
        return b"".join([piece async for piece in outcome.stream])
    finally:
        await outcome.stream.aclose()
