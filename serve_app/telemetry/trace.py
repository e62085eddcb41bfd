"""What is known of a request while it is answered, and the record that is left of it. Never content."""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from deployments.models.contract.engine import Usage
from deployments.state.identity.principal import Principal
from deployments.state.usage.record import RequestRecord

CLIENT_CLOSED_REQUEST = 499
"""The status that records show for a client that left before its answer was complete; never sent to anyone."""


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as far as they got: one over HTTP, or the line of a batch that `batch_id` names.

    `at` is in Unix seconds, `started` and `first_piece_at` on the monotonic clock. `model` is only set to the id of
    a model that exists, since what a client wrote there may be anything. `server_send` is the server's own send: once
    the head of an answer has passed the middleware, the rest may go there directly. One that `goes_on` after its answer
    is recorded by whoever carries it on.
    """

    request_id: str
    method: str
    at: float
    started: float
    server_send: Callable[[MutableMapping[str, Any]], Awaitable[None]] | None = None
    principal: Principal | None = None
    model: str | None = None
    status: int = 0
    code: str | None = None
    stream: bool = False
    usage: Usage | None = None
    first_piece_at: float | None = None
    goes_on: bool = False
    batch_id: str | None = None


def record_of(exchange: Exchange, *, route: str, ended: float) -> RequestRecord:
    """Return the exchange as one line of the request log; `ended` is on the monotonic clock."""
    principal = exchange.principal
    usage = exchange.usage or Usage()
    first = exchange.first_piece_at
    return RequestRecord(
        request_id=exchange.request_id,
        at=exchange.at,
        key_id=principal.key_id if principal else None,
        account=principal.account if principal else None,
        tier=principal.tier if principal else None,
        method=exchange.method,
        route=route,
        model=exchange.model,
        status=exchange.status,
        code=exchange.code,
        stream=exchange.stream,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        ttft_s=round(first - exchange.started, 6) if first is not None else None,
        total_s=round(ended - exchange.started, 6),
        batch_id=exchange.batch_id,
    )
