"""Webhook endpoints and deliveries as values, and the errors of a refused change. Times are Unix seconds."""

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import orjson

from deployments.state.database.queries import columns_for
from deployments.state.encryption.sealing import AccountKey, DataKey

MAX_ENDPOINTS = 20
"""Endpoints that one account may have."""
KEPT_SECRET_S = 86_400.0
"""How long a rotated secret still signs, if the client asks for that."""

EventType = Literal[
    "batch.completed",
    "batch.failed",
    "batch.expired",
    "batch.cancelled",
    "response.completed",
    "response.failed",
    "response.cancelled",
    "response.incomplete",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)

_SECRET_BEGINNING = "whsec_"  # noqa: S105
_SECRET_BYTES = 32
_HINT_CHARS = 4
_RECORD_LABEL, _SECRET_LABEL, _PREVIOUS_LABEL = b"webhook", b"webhook secret", b"webhook previous secret"


class EndpointMissing(LookupError):
    """The account has no such endpoint."""


class TooManyEndpoints(Exception):
    """The account has as many endpoints as it may."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that an account wants its events at. Its secrets stay out of its repr.

    `previous` still signs beside `secret`; None if no secret was rotated lately. An endpoint `is_disabled` after it has
    failed for days or is gone, and gets no events.
    """

    endpoint_id: str
    account: str
    name: str
    url: str = field(repr=False)
    event_types: tuple[str, ...]
    created_at: float
    updated_at: float
    is_disabled: bool
    secret: str = field(repr=False)
    previous: str | None = field(repr=False)

    @property
    def secret_hint(self) -> str:
        """A part of the secret that identifies it and does not reveal it."""
        return f"{_SECRET_BEGINNING}...{self.secret[-_HINT_CHARS:]}"


class Event(NamedTuple):
    """An event of the batch or the response `object_id`."""

    event_id: str
    type: str
    object_id: str
    created_at: float

    def to_wire(self) -> dict[str, Any]:
        """Return the event as JSON for its endpoints."""
        return {
            "id": self.event_id,
            "object": "event",
            "created_at": int(self.created_at),
            "type": self.type,
            "data": {"id": self.object_id},
        }


class Delivery(NamedTuple):
    """An event on its way to an endpoint; `num_tries` counts this try."""

    event: Event
    endpoint: Endpoint
    num_tries: int


def new_event(kind: str, object_id: str, at: float) -> Event:
    """Return an event under an id of its own."""
    return Event(f"evt_{secrets.token_hex(16)}", kind, object_id, at)


def new_secret() -> str:
    """Return a secret that signs deliveries, in the form of Standard Webhooks."""
    return _SECRET_BEGINNING + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def key_of_secret(secret: str) -> bytes:
    """Return the bytes that a secret stands for."""
    return base64.b64decode(secret.removeprefix(_SECRET_BEGINNING))


def seal_record(key: DataKey, name: str, url: str) -> bytes:
    """Return the sealed name and address of an endpoint."""
    return key.seal(orjson.dumps({"name": name, "url": url}), _RECORD_LABEL)


def seal_secret(key: DataKey, secret: str) -> bytes:
    """Return the sealed secret of an endpoint."""
    return key.seal(secret.encode(), _SECRET_LABEL)


def seal_previous(key: DataKey, secret: str) -> bytes:
    """Return the sealed secret that an endpoint had before."""
    return key.seal(secret.encode(), _PREVIOUS_LABEL)


def endpoint_of(row: Mapping[str, Any], account_key: AccountKey, now: float) -> Endpoint:
    """Return the endpoint in a row.

    Raises:
        SealBroken: the key is another account's.
    """
    key = account_key.open_object(row["endpoint_id"], row["wrapped_key"])
    record = orjson.loads(key.open(row["sealed_record"], _RECORD_LABEL))
    has_previous = row["sealed_previous"] is not None and now < row["previous_until"]
    opened = {
        "event_types": tuple(row["event_types"]),
        "secret": key.open(row["sealed_secret"], _SECRET_LABEL).decode(),
        "previous": key.open(row["sealed_previous"], _PREVIOUS_LABEL).decode() if has_previous else None,
    }
    return Endpoint(**columns_for(Endpoint, row) | record | opened)
