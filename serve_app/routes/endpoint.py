"""What endpoints share: their contract, who is asking, admission, and JSON answers.

The OpenAPI document is derived from contracts. They name types of the `openai` package, because importing it takes half
a second and 20 MB: a process does so only when a client asks for the document.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.operations import Operation
from deployments.state.audit_log import Actor
from deployments.state.identity.principal import Principal
from deployments.steps import ADMISSION, step
from serve_app.http.admission import Ticket
from serve_app.http.auth import authenticate, check_admin, key_digest
from serve_app.http.middleware import TRACE
from serve_app.operations.contract import Cost
from serve_app.operations.scopes import check_operation
from serve_app.operations.service_tiers import DEFAULT_TERMS, Terms
from serve_app.services import Services
from serve_app.telemetry.trace import RequestTrace
from serve_app.validation.body import Sent, in_thread_if_large, validate_body

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Body = TypeVar("Body", bound=BaseModel)

PRINCIPAL = "manta.principal"
"""Where an ASGI scope holds the principal of a console session, which sends no API key."""
_FREES = ("/cancel", "/delete")
"""The ends of paths whose POST makes room; the console deletes so."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What an endpoint takes and answers with; the route table has its path, its docstring the summary.

    `answer`, `of` and `events` are types, or their full names. `of` is the parameter of a generic answer, `events` the
    type of each server-sent event. `form` is the body as a multipart form. `exports` are other media types that a query
    may ask for.
    """

    answer: Any
    of: Any = None
    events: Any = None
    body: type[BaseModel] | None = None
    form: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    media_type: str = "application/json"
    exports: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    needs_key: bool = True


def answers(answer: Any, **more: Any) -> Callable[[Endpoint], Endpoint]:
    """Return a decorator that gives an endpoint a Contract with these fields."""
    contract = Contract(answer, **more)

    def note(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["contract"] = contract
        return endpoint

    return note


def contract_of(endpoint: Callable[..., Any]) -> Contract:
    """Return the contract of an endpoint, or raise LookupError."""
    contract = vars(endpoint).get("contract")
    if not isinstance(contract, Contract):
        raise LookupError(f"{endpoint.__module__}.{endpoint.__name__} needs an `@answers(...)`.")
    return contract


def services_of(request: Request) -> Services:
    """Return the services that the application was created with."""
    services: Services = request.app.state.services
    return services


def trace_of(request: Request) -> RequestTrace:
    """Return the record of the request so far."""
    trace: RequestTrace = request.scope[TRACE]
    return trace


async def caller(request: Request, operation: Operation | None = None, *, takes_ticket: bool = False) -> Principal:
    """Return the holder of the request's API key; note it for the log and the headers.

    Counts as a call of the key, unless the endpoint `takes_ticket`, which counts as a request.

    Raises:
        Unauthenticated, InvalidKey, Unavailable, WrongRegion: as `authenticate` does.
        RateLimited: the key has used up its calls of this minute.
        ReserveReached: the request would store something, and a disk is almost full.
        PermissionDenied: the key may not use the operation.
    """
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        services, trace = services_of(request), trace_of(request)
        principal = trace.principal = await authenticate(request, services.gatekeeper, services.region)
        if takes_ticket:
            trace.key_digest = key_digest(request, services.gatekeeper)
        else:
            services.count_call(principal)
    trace_of(request).principal = principal
    if request.method == "POST" and not takes_ticket and not request.scope["path"].endswith(_FREES):
        await services_of(request).disk.check()
    if operation is not None:
        check_operation(principal, operation)
    return principal


@asynccontextmanager
async def admitted(request: Request, operation: Operation) -> AsyncIterator[tuple[Principal, Ticket]]:
    """Context manager that admits a request, and yields the principal and its ticket.

    On leaving, the ticket is refunded, unless it was detached.

    Raises:
        ApiError: as `caller` and `Admission.admit` do.
    """
    with step(ADMISSION):
        principal = await caller(request, operation, takes_ticket=True)
        ticket = await services_of(request).admission.admit(principal)
    async with ticket:
        yield principal, ticket


async def read_body(request: Request, schema: type[Body]) -> tuple[Body, Sent]:
    """Return the body of a request to a model without what this service ignores; a large one is read in a thread.

    Raises:
        UnparsableBody, BadRequest: as `parse_json_body` does.
    """

    def read(raw: bytes) -> tuple[Body, Sent]:
        sent = services_of(request).operations.ignored.read(raw)
        return validate_body(sent.value, schema), sent

    return await in_thread_if_large(await request.body(), read)


async def reserve(ticket: Ticket, trace: RequestTrace, cost: Cost, terms: Terms = DEFAULT_TERMS) -> None:
    """Reserve what a request may take; note its model and terms for the log. Raises RateLimited."""
    trace.model = cost.model
    trace.service_tier, trace.token_weight = terms
    with step(ADMISSION):
        await ticket.reserve(cost, terms.token_weight)


async def admin_caller(request: Request) -> Principal:
    """Return the holder of the request's admin key; note it for the log. Raises ApiError as `caller` does."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None or not principal.is_admin:
        services = services_of(request)
        principal = trace_of(request).principal = await authenticate(request, services.gatekeeper, services.region)
        services.count_call(principal)
        check_admin(principal)
    trace_of(request).principal = principal
    return principal


def actor_of(principal: Principal) -> Actor:
    """Return a key as the actor of the audit log."""
    return Actor("api_key", principal.key_id)


class Deleted(TypedDict):
    """The answer about a deleted object."""

    id: str
    object: str
    deleted: Literal[True]


def json_response(content: Any, status: int = 200) -> Response:
    """Return a JSON answer that no cache keeps."""
    return Response(
        orjson.dumps(content), status_code=status, media_type="application/json", headers={"cache-control": "no-store"}
    )


def deleted_response(object_id: str, kind: str) -> Response:
    """Return the answer about a deleted object."""
    deleted: Deleted = {"id": object_id, "object": kind, "deleted": True}
    return json_response(deleted)
