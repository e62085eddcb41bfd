"""The account's keys: listed, created, changed, rotated and revoked by its holders, within what their own key may.

Only a key without operation and model scopes manages keys, so that the key of one program cannot reach further. A key
without the scope for usage sees itself alone.
"""

from typing import Any

from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.identity.key_store import KeyNotFound
from deployments.state.identity.keys import ApiKey, KeyChange, NewKey
from deployments.state.identity.principal import RETENTIONS, Principal
from serve_app.console.pages.key_fields import parse_key_fields
from serve_app.console.rendering import show_machine_time
from serve_app.console.session import drop_cookie, sessions_of
from serve_app.console.visit import Visit, may_read_usage, redirect
from serve_app.errors.api import BadRequest, Conflict, NotFound, PermissionDenied
from serve_app.operations.scopes import check_within, within
from serve_app.routes import keys
from serve_app.routes.keys import key_errors
from serve_app.validation.body import validate_body

OVERLAPS = {"0": "at once", "3600": "after an hour", "86400": "after a day", "604800": "after a week"}
DEFAULT_OVERLAP = "86400"
_NEW_FIELDS = ("name", "requests_per_minute", "tokens_per_minute", "operations", "models", "retention", "expires_at")


async def show_keys(visit: Visit, status: int = 200, **values: Any) -> Response:
    """Show the account's keys."""
    if may_read_usage(visit.principal):
        shown = await visit.services.keys.list_keys(visit.account)
    else:
        shown = [await visit.services.keys.show(visit.principal.key_id)]
    shown.sort(key=lambda key: key.key_id != visit.principal.key_id)
    about: dict[str, Any] = {
        "keys": shown,
        "most_keys": visit.services.tiers.of(visit.principal.tier).keys,
        "issued": None,
        "message": "",
        "given": {},
        "old_ends": "",
        "last_used": await visit.services.request_log.last_used("key_id", [key.key_id for key in shown]),
    }
    return visit.page("keys.html", status, **_common(visit, shown), **about | values)


async def create_key(visit: Visit) -> Response:
    """Create a key of the account; its secret is shown once."""
    _check_manages(visit.principal)
    own = visit.principal
    owner = {"account": own.account, "organization": own.organization, "tier": own.tier}
    most = visit.services.tiers.of(own.tier).keys
    try:
        new = within(own, validate_body({**owner, **_limits_of(own), **_wanted(visit)}, NewKey))
        with key_errors():
            key, secret = await visit.services.keys.create(new, by=visit.actor, max_keys=most)
    except (BadRequest, PermissionDenied) as refused:
        return await show_keys(visit, refused.status, message=refused.message, given=visit.fields)
    return await show_keys(visit, issued=key, secret=secret)


async def show_key(visit: Visit) -> Response:
    """Show one key of the account, with the form that changes it."""
    return await _show(visit, await _find(visit))


async def change_key(visit: Visit) -> Response:
    """Change the name of a key; of any key but the session's own its limits, scopes, retention and expiry, too."""
    key = await _managed(visit)
    own, wanted = visit.principal, _wanted(visit)
    if key.key_id == own.key_id:
        wanted = {name: value for name, value in wanted.items() if name == "name"}
    else:
        empty = {"operations": None, "models": None, "expires_at": own.expires_at}
        wanted = {**empty, **_limits_of(own), **wanted}
    try:
        change = validate_body(wanted, KeyChange)
        with key_errors(key.key_id):
            await keys.change_key(visit.services.keys, own, key.key_id, change, visit.actor)
    except (BadRequest, PermissionDenied) as refused:
        return await _show(visit, key, refused.status, refused.message)
    return redirect(f"/console/keys/{key.key_id}?done=changed")


async def rotate_key(visit: Visit) -> Response:
    """Give a key a new secret, shown once; a session of the key continues with it."""
    overlap = visit.fields.get("overlap", DEFAULT_OVERLAP)
    if overlap not in OVERLAPS:
        raise BadRequest("Choose when the old secret ends.")
    key = await _managed(visit)
    services = visit.services
    with key_errors(key.key_id):
        key, secret = await keys.renew_secret(services.keys, visit.principal, key.key_id, float(overlap), visit.actor)
    if key.key_id == visit.principal.key_id:
        await sessions_of(services).rekey(visit.session.stored, services.gatekeeper.digest(secret))
    return await show_keys(visit, issued=key, secret=secret, old_ends=OVERLAPS[overlap])


async def revoke_key(visit: Visit) -> Response:
    """Revoke a key for good. The last key that manages the account's keys stays."""
    key = await _managed(visit)
    is_own = key.key_id == visit.principal.key_id
    if is_own and not await _has_other_full_key(visit):
        raise Conflict(
            "This is the only key of the account that can manage its keys. Create another key without scopes first, "
            "sign in with it, and revoke this one there."
        )
    await visit.services.keys.revoke(key.key_id, by=visit.actor)
    if not is_own:
        return redirect("/console/keys?done=revoked")
    response = redirect("/console/sign-in")
    drop_cookie(visit.request, response)
    return response


def _manages(principal: Principal) -> bool:
    """Return whether a key may create and change keys: it has no operation and no model scopes."""
    return principal.operations is None and principal.models is None


def _check_manages(principal: Principal) -> None:
    if not _manages(principal):
        raise PermissionDenied("A key with scopes cannot manage keys. Sign in with a key without scopes.")


async def _find(visit: Visit) -> ApiKey:
    """Return the key in the path.

    Raises:
        NotFound: the session's key may not see it, or the account has none with this id.
    """
    key_id = visit.request.path_params["key_id"]
    try:
        key = await visit.services.keys.show(key_id)
    except KeyNotFound:
        key = None
    may_see = key_id == visit.principal.key_id or may_read_usage(visit.principal)
    if key is None or not may_see or key.account != visit.account:
        raise NotFound("This account has no such API key.")
    return key


async def _managed(visit: Visit) -> ApiKey:
    """Return the key in the path, for a change.

    Raises:
        NotFound: see `_find`.
        PermissionDenied: the session's key may not manage it.
    """
    key = await _find(visit)
    _check_manages(visit.principal)
    check_within(visit.principal, key)
    return key


def _may_manage(visit: Visit, key: ApiKey) -> bool:
    try:
        check_within(visit.principal, key)
    except PermissionDenied:
        return False
    return _manages(visit.principal) and key.revoked_at is None


async def _has_other_full_key(visit: Visit) -> bool:
    now = sessions_of(visit.services).clock()
    return any(
        key.key_id != visit.principal.key_id and not key.operations and not key.models and key.status(now) == "active"
        for key in await visit.services.keys.list_keys(visit.account)
    )


def _wanted(visit: Visit) -> dict[str, Any]:
    return parse_key_fields({name: text for name, text in visit.fields.items() if name in _NEW_FIELDS})


def _limits_of(own: Principal) -> dict[str, int]:
    """Return the limits of a key for which the form names none: those of the session's key."""
    return {"requests_per_minute": own.requests_per_minute, "tokens_per_minute": own.tokens_per_minute}


async def _show(visit: Visit, key: ApiKey, status: int = 200, message: str = "") -> Response:
    last_used = (await visit.services.request_log.last_used("key_id", [key.key_id])).get(key.key_id)
    shown = {"key": key, "message": message, "last_used": last_used, "given": _given(key) | visit.fields}
    return visit.page("key.html", status, **_common(visit, [key]), **shown)


def _given(key: ApiKey) -> dict[str, str]:
    """Return the fields of the form as they are now, without the operations."""
    return {
        "name": key.name,
        "requests_per_minute": str(key.requests_per_minute),
        "tokens_per_minute": str(key.tokens_per_minute),
        "models": "\n".join(key.models or ()),
        "retention": key.retention,
        "expires_at": "" if key.expires_at is None else show_machine_time(key.expires_at)[:16],
    }


def _common(visit: Visit, shown: list[ApiKey]) -> dict[str, Any]:
    return {
        "now": sessions_of(visit.services).clock(),
        "manages": _manages(visit.principal),
        "managed": {key.key_id for key in shown if _may_manage(visit, key)},
        "overlaps": OVERLAPS,
        "default_overlap": DEFAULT_OVERLAP,
        "operations": [operation.value for operation in Operation],
        "retentions": RETENTIONS,
    }
