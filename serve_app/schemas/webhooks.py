"""The bodies of webhook endpoints, and how an endpoint is shown. Shapes and names are those of OpenAI's SDK."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from deployments.state.webhooks.rows import EVENT_TYPES, Endpoint, EventType
from serve_app.schemas.base import WireModel

_EndpointName = Annotated[str, Field(min_length=1, max_length=100)]
_Url = Annotated[str, Field(min_length=1, max_length=2048)]
_EventTypes = Annotated[
    list[EventType],
    Field(min_length=1, max_length=len(EVENT_TYPES), fail_fast=True),
    AfterValidator(lambda types: list(dict.fromkeys(types))),
]


class NewWebhookEndpoint(WireModel):
    """An endpoint to be created: its name, its address, and what it wants to hear of."""

    name: _EndpointName
    url: _Url
    event_types: _EventTypes


class WebhookEndpointChange(WireModel):
    """What is to change of an endpoint; a body without any field enables it again."""

    name: _EndpointName | None = None
    url: _Url | None = None
    event_types: _EventTypes | None = None


class SecretRotation(WireModel):
    """Whether the old secret still signs, beside the new one, for 24 hours."""

    keep_old_secret_active_for_24_hours: bool = False


class WebhookTest(WireModel):
    """The event of which a sample is sent."""

    event_type: EventType


def endpoint_to_wire(endpoint: Endpoint, *, shows_secret: bool = False) -> dict[str, Any]:
    """Return an endpoint as clients know it, with its secret only where that is new."""
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
