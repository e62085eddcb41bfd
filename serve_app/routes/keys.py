"""/v1/organization/admin/keys: API keys issued, listed, limited, rotated and revoked under an admin key."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.state.audit_log import Actor
from deployments.state.identity.key_store import KeyNotFound, KeyRefused, KeyStore
from deployments.state.identity.keys import ApiKey, KeyChange, NewKey
from deployments.state.identity.principal import Principal
from serve_app.errors.api import BadRequest, NotFound
from serve_app.operations.scopes import check_within, within
from serve_app.routes.endpoint import (
    Deleted,
    actor_of,
    admin_caller,
    answers,
    deleted_response,
    json_response,
    services_of,
)
from serve_app.routes.paging import parse_query
from serve_app.schemas.base import WireModel
from serve_app.validation.body import parse_body


class Rotation(WireModel):
    """How long the old secret is still accepted, in seconds.

    Args:
        overlap_s: for how many seconds the old secret still works.
    """

    example: ClassVar[dict[str, Any]] = {"overlap_s": 86400}

    overlap_s: Annotated[float, Field(ge=0)] = 0.0


class KeyQuery(WireModel):
    """Which keys are listed.

    Args:
        account: only the keys of this account.
        include_revoked: `true` also returns revoked keys.
    """

    account: str | None = None
    include_revoked: Annotated[bool, BeforeValidator(lambda value: value is True)] = False


class ShownKey(TypedDict):
    """A key without its secret. Times are in Unix seconds."""

    id: str
    object: Literal["organization.api_key"]
    name: str
    account: str
    organization: str
    tier: str
    requests_per_minute: int
    tokens_per_minute: int
    operations: tuple[str, ...] | None
    models: tuple[str, ...] | None
    regions: tuple[str, ...] | None
    retention: str
    is_admin: bool
    redacted_value: str
    created_at: int
    rotated_at: int | None
    previous_expires_at: int | None
    revoked_at: int | None
    expires_at: int | None


class IssuedKey(ShownKey):
    """A key with its secret, which is shown once."""

    secret: str


class KeyList(TypedDict):
    """A list of keys."""

    object: Literal["list"]
    data: list[ShownKey]
    has_more: bool


@answers(IssuedKey, body=NewKey)
async def create_key(request: Request) -> Response:
    """Create an API key.

    Only this answer contains the secret.
    """
    keys, principal = await _keys(request)
    new = within(principal, await parse_body(await request.body(), NewKey))
    with key_errors():
        key, secret = await keys.create(new, by=actor_of(principal))
    return json_response({**key_to_wire(key), "secret": secret})


@answers(KeyList, query=KeyQuery)
async def list_keys(request: Request) -> Response:
    """List API keys.

    Newest first.
    """
    keys, _ = await _keys(request)
    query = parse_query(request, KeyQuery)
    found = await keys.list_keys(query.account, include_revoked=query.include_revoked)
    return json_response({"object": "list", "data": [key_to_wire(key) for key in found], "has_more": False})


@answers(ShownKey)
async def show_key(request: Request) -> Response:
    """Retrieve an API key.

    Revoked keys, too.
    """
    keys, _ = await _keys(request)
    key_id = request.path_params["key_id"]
    with key_errors(key_id):
        return json_response(key_to_wire(await keys.show(key_id)))


@answers(ShownKey, body=KeyChange)
async def limit_key(request: Request) -> Response:
    """Update an API key.

    Changes its limits, scopes, expiry or retention. Fields that are left out stay as they are.
    """
    keys, principal = await _keys(request)
    key_id, change = request.path_params["key_id"], await parse_body(await request.body(), KeyChange)
    with key_errors(key_id):
        return json_response(key_to_wire(await change_key(keys, principal, key_id, change, actor_of(principal))))


async def change_key(keys: KeyStore, principal: Principal, key_id: str, change: KeyChange, by: Actor) -> ApiKey:
    """Change the fields of a key that are set in `change`; return the key.

    Raises:
        KeyNotFound, KeyRefused: as `KeyStore.limit` does.
        PermissionDenied: the changed key would have more than `principal` may give.
    """
    key = await keys.show(key_id)
    check_within(principal, replace(key, **change.model_dump(include=change.model_fields_set)))
    return await keys.limit(key_id, change, by=by)


@answers(IssuedKey, body=Rotation)
async def rotate_key(request: Request) -> Response:
    """Rotate the secret of an API key.

    Only this answer contains the new secret.
    """
    keys, principal = await _keys(request)
    rotation = await parse_body(await request.body() or b"{}", Rotation)
    key_id = request.path_params["key_id"]
    with key_errors(key_id):
        key, secret = await renew_secret(keys, principal, key_id, rotation.overlap_s, actor_of(principal))
    return json_response({**key_to_wire(key), "secret": secret})


async def renew_secret(
    keys: KeyStore, principal: Principal, key_id: str, overlap_s: float, by: Actor
) -> tuple[ApiKey, str]:
    """Give a key a new secret; return both. The old secret is accepted for another `overlap_s` seconds.

    Raises:
        KeyNotFound, KeyRefused: as `KeyStore.rotate` does.
        PermissionDenied: the key may do more than `principal` may give.
    """
    check_within(principal, await keys.show(key_id))
    return await keys.rotate(key_id, overlap_s, by=by)


@answers(Deleted)
async def revoke_key(request: Request) -> Response:
    """Revoke an API key.

    This cannot be undone.
    """
    keys, principal = await _keys(request)
    key_id = request.path_params["key_id"]
    with key_errors(key_id):
        key = await keys.revoke(key_id, by=actor_of(principal))
    return deleted_response(key.key_id, "organization.api_key.deleted")


def key_to_wire(key: ApiKey) -> ShownKey:
    """Return a key without its secret."""
    return {
        "id": key.key_id,
        "object": "organization.api_key",
        "name": key.name,
        "account": key.account,
        "organization": key.organization,
        "tier": key.tier,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "operations": key.operations,
        "models": key.models,
        "regions": key.regions,
        "retention": key.retention,
        "is_admin": key.is_admin,
        "redacted_value": key.display,
        "created_at": int(key.created_at),
        "rotated_at": _whole(key.rotated_at),
        "previous_expires_at": _whole(key.previous_expires_at),
        "revoked_at": _whole(key.revoked_at),
        "expires_at": _whole(key.expires_at),
    }


def _whole(at: float | None) -> int | None:
    return None if at is None else int(at)


async def _keys(request: Request) -> tuple[KeyStore, Principal]:
    principal = await admin_caller(request)
    return services_of(request).keys, principal


@contextmanager
def key_errors(key_id: str = "") -> Iterator[None]:
    """Context manager that answers the key store's errors with 404 and 400."""
    try:
        yield
    except KeyNotFound:
        raise NotFound(f"No API key found with id '{key_id[:64]}'.", param="key_id") from None
    except KeyRefused as refused:
        raise BadRequest(str(refused), param=refused.param) from None
