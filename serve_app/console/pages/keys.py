"""The account's keys, and the rotation of the session's own key."""

from typing import Any

from starlette.responses import Response

from deployments.state.identity.key_store import KeyRefused
from deployments.state.identity.keys import ApiKey
from deployments.state.usage.request_log import RequestFilter
from serve_app.console.session import sessions_of
from serve_app.console.visit import Visit, may_read_usage
from serve_app.errors.api import BadRequest, PermissionDenied

OVERLAPS = {"0": "at once", "3600": "after an hour", "86400": "after a day", "604800": "after a week"}


async def show_keys(visit: Visit) -> Response:
    """Show the account's keys."""
    return await _page(visit)


async def rotate_key(visit: Visit) -> Response:
    """Give the session's own key a new secret, shown once; the session continues with it."""
    overlap = visit.fields.get("overlap", "0")
    if overlap not in OVERLAPS:
        raise BadRequest("Choose when the old secret ends.")
    if not _may_rotate(visit):
        raise PermissionDenied("A key with scopes cannot be rotated here. Ask the operator for another secret.")
    services = visit.services
    try:
        _, secret = await services.keys.rotate(visit.principal.key_id, float(overlap), by=visit.actor)
    except KeyRefused as refused:
        raise BadRequest(str(refused)) from None
    await sessions_of(services).rekey(visit.session.stored, services.gatekeeper.digest(secret))
    return await _page(visit, secret=secret, old_ends=OVERLAPS[overlap])


def _may_rotate(visit: Visit) -> bool:
    return visit.principal.operations is None and visit.principal.models is None


async def _page(visit: Visit, secret: str = "", old_ends: str = "") -> Response:
    if may_read_usage(visit.principal):
        keys = await visit.services.keys.list_keys(visit.account)
    else:
        keys = [await visit.services.keys.show(visit.principal.key_id)]
    now = sessions_of(visit.services).clock()
    own = [key for key in keys if key.key_id == visit.principal.key_id]
    rest = [key for key in keys if key.key_id != visit.principal.key_id]
    values: dict[str, Any] = {
        "own": own,
        "rest": rest,
        "now": now,
        "secret": secret,
        "old_ends": old_ends,
        "overlaps": OVERLAPS if _may_rotate(visit) else {},
    }
    return visit.page("keys.html", **values, last_used=await _last_used(visit, keys))


async def _last_used(visit: Visit, keys: list[ApiKey]) -> dict[str, float]:
    """Return when each key was last used, in Unix seconds; keys without a request in the log are left out."""
    log = visit.services.request_log
    found = [(key.key_id, await log.page(RequestFilter(key_id=key.key_id), 1)) for key in keys]
    return {key_id: page.records[0].at for key_id, page in found if page.records}
