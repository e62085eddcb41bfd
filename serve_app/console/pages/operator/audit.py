"""The audit log, filtered by account, action and day."""

from datetime import UTC, datetime

from starlette.responses import Response

from deployments.state.audit_log import AuditEntry, AuditFilter, UnknownEntry
from serve_app.console.visit import Visit
from serve_app.errors.api import BadRequest

_PAGE_SIZE = 50
_DAY_S = 86_400
_ACTIONS = (
    "api_key.created",
    "api_key.updated",
    "api_key.deleted",
    "project.created",
    "login.succeeded",
    "login.failed",
    "logout.succeeded",
    "batch.paused",
    "batch.resumed",
    "batch.cancelled",
    "webhook_endpoint.created",
    "webhook_endpoint.updated",
    "webhook_endpoint.deleted",
    "region.drained",
    "region.undrained",
    "region.forgotten",
)


async def list_entries(visit: Visit) -> Response:
    """Show the entries of the audit log, newest first."""
    given = {name: visit.query(name).strip() for name in ("account", "action", "target", "since", "until")}
    since, until = _day(given["since"]), _day(given["until"])
    where = AuditFilter(
        accounts=_only(given["account"]),
        events=_only(given["action"]),
        targets=_only(given["target"]),
        since=since,
        until=None if until is None else until + _DAY_S,
    )
    try:
        entries, has_more = await visit.services.audit.page(where, _PAGE_SIZE, after=visit.after)
    except UnknownEntry:
        raise BadRequest("This page of the log does not exist.") from None
    kept = visit.request.url.include_query_params(after="").remove_query_params("after").query
    more = entries[-1].entry_id if has_more else ""
    shown = [(entry, _fields_of(entry)) for entry in entries]
    return visit.page("operator/audit.html", entries=shown, more=more, given=given, actions=_ACTIONS, kept=kept)


def _fields_of(entry: AuditEntry) -> str:
    """Return the fields that were set as a text; the account has a column of its own."""
    texts = []
    for name, value in entry.details.items():
        if name != "account" and value is not None and value is not False:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            texts.append(f"{name}: {text}")
    return "; ".join(texts)


def _only(value: str) -> tuple[str, ...] | None:
    return (value,) if value else None


def _day(text: str) -> float | None:
    """Return the start of a day (UTC) in Unix seconds, None without one.

    Raises:
        BadRequest: it is no date.
    """
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        raise BadRequest("A date reads YYYY-MM-DD.") from None
