"""Pages for operators: the keys of all accounts, the audit log, and the cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.audit_log import AuditFilter, UnknownEntry
from deployments.state.identity.key_store import KeyNotFound, KeyRefused
from deployments.state.identity.keys import ApiKey, NewKey, explain
from serve_app.console.session import sessions_of
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import BadRequest, NotFound
from serve_app.operations.scopes import check_within, within

_PAGE_SIZE = 50
_NUMBERS = ("requests_per_minute", "tokens_per_minute")
_LISTS = ("operations", "models")
_RETENTIONS = ("ephemeral", "stored", "strict")


async def show_accounts(visit: Visit) -> Response:
    """Show the keys of all accounts, or of one."""
    return await _page(visit)


async def issue_key(visit: Visit) -> Response:
    """Issue a key; its secret is shown once."""
    try:
        new = NewKey.model_validate(_wanted(visit.fields))
    except ValidationError as error:
        return await _page(visit, 400, message=explain(error), given=visit.fields)
    try:
        key, secret = await visit.services.keys.create(within(visit.principal, new), by=visit.actor)
    except KeyRefused as refused:
        return await _page(visit, 400, message=str(refused), given=visit.fields)
    return await _page(visit, issued=key, secret=secret)


async def revoke_key(visit: Visit) -> Response:
    """Revoke a key for good."""
    with _key_errors():
        await visit.services.keys.revoke(visit.request.path_params["key_id"], by=visit.actor)
    return redirect("/console/operator/keys?done=revoked")


async def rotate_key(visit: Visit) -> Response:
    """Give a key a new secret, shown once; the old one ends at once."""
    keys, key_id = visit.services.keys, visit.request.path_params["key_id"]
    with _key_errors():
        check_within(visit.principal, await keys.show(key_id))
        key, secret = await keys.rotate(key_id, by=visit.actor)
    if key.key_id == visit.principal.key_id:
        await sessions_of(visit.services).rekey(visit.session.stored, visit.services.gatekeeper.digest(secret))
    return await _page(visit, issued=key, secret=secret)


async def list_entries(visit: Visit) -> Response:
    """Show the entries of the audit log, newest first."""
    account = visit.query("account").strip()
    where = AuditFilter(accounts=(account,) if account else None)
    try:
        entries, has_more = await visit.services.audit.page(where, _PAGE_SIZE, after=visit.after)
    except UnknownEntry:
        raise BadRequest("This page of the log does not exist.") from None
    more = entries[-1].entry_id if has_more else ""
    return visit.page("audit.html", entries=entries, more=more, account=account)


async def show_cluster(visit: Visit) -> Response:
    """Show deployments, nodes, and how busy the engines are."""
    cluster = visit.services.cluster
    if cluster is None:
        raise NotFound("This service does not show its cluster.")
    seen = await cluster.look()
    return visit.page("cluster_state.html" if visit.is_fragment else "cluster.html", seen=seen)


async def _page(visit: Visit, status: int = 200, **values: Any) -> Response:
    account, with_revoked = visit.query("account").strip(), visit.query("revoked") == "on"
    keys: list[ApiKey] = await visit.services.keys.list_keys(account or None, include_revoked=with_revoked)
    about = {
        "keys": keys,
        "account": account,
        "with_revoked": with_revoked,
        "now": sessions_of(visit.services).clock(),
        "tiers": visit.services.tiers.names,
        "operations": [operation.value for operation in Operation],
        "retentions": _RETENTIONS,
    }
    return visit.page("accounts.html", status, **{**about, "issued": None, "message": "", "given": {}, **values})


def _wanted(fields: dict[str, str]) -> dict[str, Any]:
    """Return the fields of the form as those of a new key, without empty ones.

    Raises:
        BadRequest: a number or the date is not valid.
    """
    wanted: dict[str, Any] = {}
    try:
        for name, text in fields.items():
            text = text.strip()
            if not text:
                continue
            if name in _NUMBERS:
                wanted[name] = int(text)
            elif name in _LISTS:
                wanted[name] = [line.strip() for line in text.splitlines() if line.strip()]
            elif name == "expires_at":
                wanted[name] = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
            else:
                wanted[name] = text == "on" if name == "is_admin" else text
    except ValueError:
        raise BadRequest("A number or the date in the form is not valid.") from None
    return wanted


@contextmanager
def _key_errors() -> Iterator[None]:
    try:
        yield
    except KeyNotFound:
        raise NotFound("There is no such API key.") from None
    except KeyRefused as refused:
        raise BadRequest(str(refused)) from None
