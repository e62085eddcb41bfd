"""The account's webhook endpoints: listed, created, tested, enabled again, given new secrets, deleted."""

from typing import Any

from starlette.responses import Response

from deployments.state.webhooks.rows import EVENT_TYPES, MAX_ENDPOINTS, Endpoint, EndpointMissing
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import ApiError, BadRequest, NotFound
from serve_app.errors.capacity import QuotaExceeded
from serve_app.routes.webhooks import NewWebhookEndpoint, WebhookTest, add_endpoint, send_sample
from serve_app.validation.body import validate_body


async def list_endpoints(visit: Visit, refused: ApiError | None = None, **values: Any) -> Response:
    """Show the endpoints, newest first."""
    endpoints, _ = await visit.services.webhooks.list_endpoints(visit.account, MAX_ENDPOINTS, None)
    about: dict[str, Any] = {
        "endpoints": endpoints,
        "most": MAX_ENDPOINTS,
        "event_types": EVENT_TYPES,
        "message": "" if refused is None else refused.message,
        "given": {},
        "shown": None,
        "tested": None,
    }
    return visit.page("webhooks.html", 200 if refused is None else refused.status, **about | values)


async def create_endpoint(visit: Visit) -> Response:
    """Create an endpoint; its signing secret is shown once."""
    asked = {
        "name": visit.fields.get("name", "").strip(),
        "url": visit.fields.get("url", "").strip(),
        "event_types": visit.fields.get("event_types", "").split(),
    }
    try:
        if not asked["event_types"]:
            raise BadRequest("Choose at least one event.", param="event_types")
        new = validate_body(asked, NewWebhookEndpoint)
        created = await add_endpoint(visit.services, visit.principal, new, visit.actor)
    except (BadRequest, QuotaExceeded) as refused:
        return await list_endpoints(visit, refused, given=visit.fields)
    return await list_endpoints(visit, shown=created)


async def test_endpoint(visit: Visit) -> Response:
    """Send a sample event to an endpoint, and show what it answered; it counts as a request of the key."""
    endpoint = await _find(visit)
    body = validate_body({"event_type": visit.fields.get("event_type", "")}, WebhookTest)
    try:
        async with await visit.services.admission.admit(visit.principal):
            status = await send_sample(visit.services, endpoint, body.event_type)
    except BadRequest as refused:
        return await list_endpoints(visit, refused)
    return await list_endpoints(visit, tested=endpoint, answer=status)


async def enable_endpoint(visit: Visit) -> Response:
    """Enable an endpoint again that was disabled after it had failed for days."""
    endpoint = await _find(visit)
    await visit.services.webhooks.update(visit.account, endpoint.endpoint_id, by=visit.actor)
    return redirect("/console/webhooks?done=enabled")


async def rotate_secret(visit: Visit) -> Response:
    """Give an endpoint a new signing secret, shown once."""
    endpoint = await _find(visit)
    keeps = visit.fields.get("keeps") == "yes"
    store = visit.services.webhooks
    rotated = await store.rotate(visit.account, endpoint.endpoint_id, keeps_previous=keeps, by=visit.actor)
    return await list_endpoints(visit, shown=rotated)


async def delete_endpoint(visit: Visit) -> Response:
    """Delete an endpoint, with the events that it has not acknowledged."""
    endpoint = await _find(visit)
    await visit.services.webhooks.delete(visit.account, endpoint.endpoint_id, by=visit.actor)
    return redirect("/console/webhooks?done=deleted")


async def _find(visit: Visit) -> Endpoint:
    try:
        return await visit.services.webhooks.find(visit.account, visit.request.path_params["endpoint_id"])
    except EndpointMissing:
        raise NotFound("This account has no such webhook endpoint.") from None
