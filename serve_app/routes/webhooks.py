"""/v1/webhook_endpoints: create, list, retrieve, update, delete, test, rotate the secret; /v1/webhook_event_types."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.operations import Operation
from deployments.state.audit_log import Actor
from deployments.state.identity.principal import Principal
from deployments.state.webhooks.rows import (
    EVENT_TYPES,
    MAX_ENDPOINTS,
    Endpoint,
    EndpointMissing,
    EventType,
    TooManyEndpoints,
    new_event,
)
from deployments.state.webhooks.store import WebhookStore
from deployments.tools.outbound.errors import AddressRefused, OutboundError
from serve_app.errors.api import BadRequest, NotFound, invalid_value, shorten
from serve_app.errors.capacity import QuotaExceeded
from serve_app.routes.endpoint import (
    Deleted,
    actor_of,
    admitted,
    answers,
    caller,
    deleted_response,
    json_response,
    services_of,
)
from serve_app.routes.paging import Page, list_to_wire, parse_query, unknown_after
from serve_app.schemas.base import PageQuery, WireModel
from serve_app.services import Services
from serve_app.validation.body import parse_body

_EndpointName = Annotated[str, Field(min_length=1, max_length=100)]
_Url = Annotated[str, Field(min_length=1, max_length=2048)]
_EventTypes = Annotated[
    list[EventType],
    Field(min_length=1, max_length=len(EVENT_TYPES), fail_fast=True),
    AfterValidator(lambda types: list(dict.fromkeys(types))),
]


class NewWebhookEndpoint(WireModel):
    """An endpoint to be created, and the types of events that it receives.

    Args:
        name: a name for the endpoint.
        url: the HTTPS address that events are sent to.
        event_types: the types of events to send.
    """

    example: ClassVar[dict[str, Any]] = {
        "name": "batches",
        "url": "https://example.com/hook",
        "event_types": ["batch.completed"],
    }

    name: _EndpointName
    url: _Url
    event_types: _EventTypes


class WebhookEndpointChange(WireModel):
    """A change of an endpoint; an empty body enables it again.

    Args:
        name: the new name.
        url: the new address.
        event_types: the new types of events.
    """

    example: ClassVar[dict[str, Any]] = {"name": "batches"}

    name: _EndpointName | None = None
    url: _Url | None = None
    event_types: _EventTypes | None = None


class SecretRotation(WireModel):
    """Whether the old secret also signs for 24 hours.

    Args:
        keep_old_secret_active_for_24_hours: whether events are also signed with the old secret for 24 hours.
    """

    example: ClassVar[dict[str, Any]] = {"keep_old_secret_active_for_24_hours": True}

    keep_old_secret_active_for_24_hours: bool = False


class WebhookTest(WireModel):
    """The type of the sample event.

    Args:
        event_type: the type of the sample event.
    """

    example: ClassVar[dict[str, Any]] = {"event_type": "batch.completed"}

    event_type: EventType


def endpoint_to_wire(endpoint: Endpoint, *, shows_secret: bool = False) -> dict[str, Any]:
    """Return an endpoint for a client; the secret is shown only when it is new."""
    shown: dict[str, Any] = {
        "id": endpoint.endpoint_id,
        "object": "webhook_endpoint",
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": list(endpoint.event_types),
        "status": "disabled" if endpoint.is_disabled else "enabled",
        "created_at": int(endpoint.created_at),
        "updated_at": int(endpoint.updated_at),
        "signing_secret_hint": endpoint.secret_hint,
    }
    return shown | ({"signing_secret": endpoint.secret} if shows_secret else {})


_OBJECT = "openai.types.webhooks.WebhookEndpoint"
_NEW = "openai.types.webhooks.WebhookEndpointWithSecret"


class EventTypes(TypedDict):
    """The types of events that endpoints can receive."""

    object: Literal["list"]
    data: list[str]


@answers(_NEW, body=NewWebhookEndpoint)
async def create_endpoint(request: Request) -> Response:
    """Create a webhook endpoint.

    Only this answer contains the signing secret.
    """
    principal, _ = await _caller(request)
    body = await parse_body(await request.body(), NewWebhookEndpoint)
    created = await add_endpoint(services_of(request), principal, body, actor_of(principal))
    return json_response(endpoint_to_wire(created, shows_secret=True))


@answers(Page, of=_OBJECT, query=PageQuery)
async def list_endpoints(request: Request) -> Response:
    """List webhook endpoints.

    Newest first.
    """
    principal, store = await _caller(request)
    query = parse_query(request, PageQuery)
    try:
        found, has_more = await store.list_endpoints(principal.account, query.limit, query.after)
    except EndpointMissing:
        raise unknown_after(query.after or "") from None
    return json_response(list_to_wire([endpoint_to_wire(one) for one in found], has_more=has_more))


@answers(_OBJECT)
async def retrieve_endpoint(request: Request) -> Response:
    """Retrieve a webhook endpoint."""
    principal, store = await _caller(request)
    with _finding(request) as endpoint_id:
        return json_response(endpoint_to_wire(await store.find(principal.account, endpoint_id)))


@answers(_OBJECT, body=WebhookEndpointChange)
async def update_endpoint(request: Request) -> Response:
    """Update a webhook endpoint.

    Enables an endpoint again that was disabled after failing for days.
    """
    principal, store = await _caller(request)
    body = await parse_body(await request.body() or b"{}", WebhookEndpointChange)
    if body.url is not None:
        _check_url(services_of(request), body.url)
    with _finding(request) as endpoint_id:
        changed = await store.update(
            principal.account,
            endpoint_id,
            name=body.name,
            url=body.url,
            event_types=body.event_types,
            by=actor_of(principal),
        )
    return json_response(endpoint_to_wire(changed))


@answers(Deleted)
async def delete_endpoint(request: Request) -> Response:
    """Delete a webhook endpoint.

    Events that it has not acknowledged are no longer sent.
    """
    principal, store = await _caller(request)
    with _finding(request) as endpoint_id:
        await store.delete(principal.account, endpoint_id, by=actor_of(principal))
    return deleted_response(endpoint_id, "webhook_endpoint.deleted")


@answers(_NEW, body=SecretRotation)
async def rotate_secret(request: Request) -> Response:
    """Rotate the signing secret of a webhook endpoint.

    Only this answer contains the new secret.
    """
    principal, store = await _caller(request)
    body = await parse_body(await request.body() or b"{}", SecretRotation)
    with _finding(request) as endpoint_id:
        keeps = body.keep_old_secret_active_for_24_hours
        rotated = await store.rotate(principal.account, endpoint_id, keeps_previous=keeps, by=actor_of(principal))
    return json_response(endpoint_to_wire(rotated, shows_secret=True))


@answers("openai.types.webhooks.WebhookEndpointTestResult", body=WebhookTest)
async def test_endpoint(request: Request) -> Response:
    """Send a sample event to a webhook endpoint.

    Returns the status that the endpoint answered with.
    """
    services = services_of(request)
    async with admitted(request, Operation.WEBHOOKS) as (principal, _):
        body = await parse_body(await request.body(), WebhookTest)
        with _finding(request) as endpoint_id:
            endpoint = await services.webhooks.find(principal.account, endpoint_id)
        status = await send_sample(services, endpoint, body.event_type)
    return json_response(
        {
            "object": "webhook_endpoint.test",
            "webhook_endpoint_id": endpoint_id,
            "event_type": body.event_type,
            "status_code": status,
            "success": True,
        }
    )


@answers(EventTypes)
async def list_event_types(request: Request) -> Response:
    """List the types of webhook events."""
    await caller(request, Operation.WEBHOOKS)
    listed: EventTypes = {"object": "list", "data": list(EVENT_TYPES)}
    return json_response(listed)


async def _caller(request: Request) -> tuple[Principal, WebhookStore]:
    return await caller(request, Operation.WEBHOOKS), services_of(request).webhooks


async def add_endpoint(services: Services, principal: Principal, new: NewWebhookEndpoint, by: Actor) -> Endpoint:
    """Create an endpoint of the principal's account; return it with its secret.

    Raises:
        BadRequest: events may not be sent to the address.
        QuotaExceeded: the account has as many endpoints as it may.
    """
    _check_url(services, new.url)
    try:
        return await services.webhooks.create(principal.account, new.name, new.url, new.event_types, by=by)
    except TooManyEndpoints:
        message = f"You have {MAX_ENDPOINTS} webhook endpoints, which is the limit. Delete one of them."
        raise QuotaExceeded(message, code="webhook_endpoint_limit_exceeded") from None


async def send_sample(services: Services, endpoint: Endpoint, event_type: EventType) -> int:
    """Send a sample event to an endpoint; return the status of its answer.

    Raises:
        BadRequest: the endpoint did not take it.
    """
    kind = event_type.partition(".")[0]
    sample = new_event(event_type, "batch_test" if kind == "batch" else "resp_test", time.time())
    try:
        return await services.webhook_sender.send(sample, endpoint)
    except OutboundError as error:
        raise BadRequest(
            f"The test could not be delivered. {error.message}", param="url", code="webhook_delivery_failed"
        ) from None


def _check_url(services: Services, url: str) -> None:
    try:
        services.webhook_sender.check_url(url)
    except AddressRefused as refused:
        raise invalid_value(f"Invalid 'url': {refused.message}", "url") from None


@contextmanager
def _finding(request: Request) -> Iterator[str]:
    """Context manager that yields the endpoint id of the path, and turns EndpointMissing into NotFound."""
    endpoint_id: str = request.path_params["webhook_endpoint_id"]
    try:
        yield endpoint_id
    except EndpointMissing:
        message = f"No such WebhookEndpoint object: {shorten(endpoint_id)}"
        raise NotFound(message, param="webhook_endpoint_id") from None
