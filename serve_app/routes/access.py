"""What every endpoint needs: the services, the trace and the principal of its request, and JSON answers."""

from typing import Any, Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.operations import Operation
from deployments.state.audit_log import Actor
from deployments.state.identity.principal import Principal
from serve_app.http.auth import authenticate, check_admin, key_digest
from serve_app.http.middleware import TRACE
from serve_app.operations.scopes import check_operation
from serve_app.services import Services
from serve_app.telemetry.trace import RequestTrace

PRINCIPAL = "manta.principal"
"""Where an ASGI scope holds who asks, when a session of the console says it and no API key was sent."""

_FREES = ("/cancel", "/delete")
"""How the paths end that make room by a POST; the console deletes so."""


class Deleted(TypedDict):
    """The answer about an object that was deleted."""

    id: str
    object: str
    deleted: Literal[True]


def services_of(request: Request) -> Services:
    """Return the services that the application was created with."""
    services: Services = request.app.state.services
    return services


def trace_of(request: Request) -> RequestTrace:
    """Return the record of the request so far."""
    trace: RequestTrace = request.scope[TRACE]
    return trace


async def caller(request: Request, operation: Operation | None = None, *, takes_ticket: bool = False) -> Principal:
    """Return who holds the request's API key, and note it for the log and the headers.

    It counts as a call of the key, unless the endpoint `takes_ticket`, which counts it as a request.

    Raises:
        Unauthenticated, InvalidKey, Unavailable: as `authenticate` does.
        RateLimited: the key has made as many calls as it may in a minute.
        ReserveReached: it would store something, and a disk has no more free than its reserve.
        PermissionDenied: the key may not use the operation, or not in this region.
    """
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        services, trace = services_of(request), trace_of(request)
        principal = trace.principal = await authenticate(request, services.gatekeeper, services.region)
        trace.key_digest = key_digest(request, services.gatekeeper)
        if not takes_ticket:
            services.count_call(principal)
    trace_of(request).principal = principal
    if request.method == "POST" and not takes_ticket and not request.scope["path"].endswith(_FREES):
        await services_of(request).disk.check()
    if operation is not None:
        check_operation(principal, operation)
    return principal


async def admin_caller(request: Request) -> Principal:
    """Return who holds the request's admin key, and note it for the log.

    Raises:
        PermissionDenied, Unauthenticated, InvalidKey, Unavailable: as `authenticate` and `check_admin` do.
        RateLimited: the key has made as many calls as it may in a minute.
    """
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None or not principal.is_admin:
        services = services_of(request)
        principal = trace_of(request).principal = await authenticate(request, services.gatekeeper, services.region)
        services.count_call(principal)
        check_admin(principal)
    trace_of(request).principal = principal
    return principal


def actor_of(principal: Principal) -> Actor:
    """Return the holder of a key as the audit log names it."""
    return Actor("api_key", principal.key_id)


def json_response(content: Any, status: int = 200) -> Response:
    """Return an answer that no cache keeps."""
    return Response(
        orjson.dumps(content), status_code=status, media_type="application/json", headers={"cache-control": "no-store"}
    )


def deleted_response(object_id: str, kind: str) -> Response:
    """Return the answer about an object that was deleted."""
    deleted: Deleted = {"id": object_id, "object": kind, "deleted": True}
    return json_response(deleted)
