"""The keys of all accounts: listed, created, changed, rotated and revoked, by the rules of the API's admin routes."""

import time
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.identity.keys import ApiKey, KeyChange, NewKey
from deployments.state.identity.principal import RETENTIONS
from deployments.state.usage.reading import UsageFilter
from serve_app.console.pages.key_fields import parse_key_fields
from serve_app.console.pages.keys import DEFAULT_OVERLAP, OVERLAPS
from serve_app.console.pages.operator.accounts import month_of
from serve_app.console.session import sessions_of
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import ApiError, BadRequest, PermissionDenied
from serve_app.operations.scopes import within
from serve_app.routes.keys import change_key, key_errors, renew_secret
from serve_app.validation.body import validate_body

_PAGE_SIZE = 50
_NUMBERS = ("requests_per_minute", "tokens_per_minute")
_LISTS = ("operations", "models", "regions")
_MOMENT = "%Y-%m-%dT%H:%M"
"""The format of a date and time in a form."""


async def list_keys(visit: Visit) -> Response:
    """Show the keys of all accounts, or of one, newest first."""
    account, with_revoked = visit.query("account").strip(), visit.query("revoked") == "on"
    keys = await visit.services.keys.list_keys(account or None, include_revoked=with_revoked)
    first = next((place for place, key in enumerate(keys, 1) if key.key_id == visit.after), 0)
    shown = keys[first : first + _PAGE_SIZE]
    return visit.page(
        "operator/keys.html",
        keys=shown,
        more=shown[-1].key_id if len(keys) > first + _PAGE_SIZE else "",
        last_used=await visit.services.request_log.last_used("key_id", [key.key_id for key in shown]),
        account=account,
        with_revoked=with_revoked,
        overlaps=OVERLAPS,
        default_overlap=DEFAULT_OVERLAP,
        now=sessions_of(visit.services).clock(),
    )


async def show_new_key(visit: Visit) -> Response:
    """Show the form for a new key."""
    retention = NewKey.model_fields["retention"].default  # Without it the form would show that of the session's key.
    return _new_key_page(visit, {"account": visit.query("account"), "retention": retention})


async def create_key(visit: Visit) -> Response:
    """Create a key; its secret is shown once."""
    try:
        new = validate_body(parse_key_fields(visit.fields), NewKey)
        with key_errors():
            key, secret = await visit.services.keys.create(within(visit.principal, new), by=visit.actor)
    except (BadRequest, PermissionDenied) as refused:
        return _new_key_page(visit, visit.fields, refused)
    return visit.page("operator/secret.html", key=key, secret=secret, old_ends="")


async def show_key(visit: Visit, refused: ApiError | None = None) -> Response:
    """Show one key: its usage, its limits and scopes in a form, and what can be done with it."""
    services, key_id = visit.services, visit.request.path_params["key_id"]
    with key_errors(key_id):
        key = await services.keys.show(key_id)
    used = await services.used_in_minute([key_id], time.time())
    last_used = await services.request_log.last_used("key_id", [key_id])
    return visit.page(
        "operator/key.html",
        200 if refused is None else refused.status,
        key=key,
        given=visit.fields if refused is not None else _form_of(visit, key),
        refused=refused,
        overlaps=OVERLAPS,
        default_overlap=DEFAULT_OVERLAP,
        minute=used.get(key_id, (0, 0)),
        last_used=last_used.get(key_id),
        now=sessions_of(services).clock(),
        usage=await month_of(visit, UsageFilter(key_ids=(key_id,))),
        **_choices(visit),
    )


async def edit_key(visit: Visit) -> Response:
    """Change the fields of a key that differ from what the form showed."""
    key_id = visit.request.path_params["key_id"]
    with key_errors(key_id):
        key = await visit.services.keys.show(key_id)
    try:
        changed = {
            name for name, text in _form_of(visit, key).items() if _lines_of(visit.fields, name) != text.splitlines()
        }
        given = parse_key_fields(visit.fields)
        change = validate_body({name: given.get(name) for name in changed}, KeyChange)
        with key_errors(key_id):
            await change_key(visit.services.keys, visit.principal, key_id, change, visit.actor)
    except (BadRequest, PermissionDenied) as refused:
        return await show_key(visit, refused)
    return redirect(f"/console/operator/keys/{key_id}?done=changed")


async def rotate_key(visit: Visit) -> Response:
    """Give a key a new secret, shown once; the old one is accepted for as long as the form asks."""
    services, key_id = visit.services, visit.request.path_params["key_id"]
    overlap = visit.fields.get("overlap", "")
    if overlap not in OVERLAPS:
        raise BadRequest("Choose when the old secret ends.")
    with key_errors(key_id):
        key, secret = await renew_secret(services.keys, visit.principal, key_id, float(overlap), visit.actor)
    if key.key_id == visit.principal.key_id:
        await sessions_of(services).rekey(visit.session.stored, services.gatekeeper.digest(secret))
    return visit.page("operator/secret.html", key=key, secret=secret, old_ends=OVERLAPS[overlap])


async def revoke_key(visit: Visit) -> Response:
    """Revoke a key for good."""
    key_id = visit.request.path_params["key_id"]
    with key_errors(key_id):
        await visit.services.keys.revoke(key_id, by=visit.actor)
    return redirect(f"/console/operator/keys/{key_id}?done=revoked")


def _new_key_page(visit: Visit, given: dict[str, str], refused: ApiError | None = None) -> Response:
    about = {"given": given, "refused": refused, **_choices(visit)}
    return visit.page("operator/key_new.html", 200 if refused is None else refused.status, **about)


def _choices(visit: Visit) -> dict[str, Any]:
    tiers = visit.services.tiers
    return {
        "tiers": {name: tiers.of(name) for name in tiers.names},
        "operations": [operation.value for operation in Operation],
        "retentions": RETENTIONS,
        "has_regions": bool(visit.services.region),
    }


def _form_of(visit: Visit, key: ApiKey) -> dict[str, str]:
    """Return a key as the fields of the form; a limit that is its tier's is empty."""
    limits = visit.services.tiers.of(key.tier)
    form = {"name": key.name, "tier": key.tier, "retention": key.retention}
    for name in _NUMBERS:
        form[name] = "" if getattr(key, name) == getattr(limits, name) else str(getattr(key, name))
    for name in _LISTS:
        form[name] = "\n".join(sorted(getattr(key, name) or ()))
    ends = key.expires_at
    form["expires_at"] = "" if ends is None else datetime.fromtimestamp(ends, UTC).strftime(_MOMENT)
    if not visit.services.region:  # The form has no field for it, so nothing would be left of the key's regions.
        del form["regions"]
    return form


def _lines_of(fields: dict[str, str], name: str) -> list[str]:
    """Return the lines of a field, sorted: their order says nothing, and browsers end them as they like."""
    return sorted(line.strip() for line in fields.get(name, "").splitlines() if line.strip())
