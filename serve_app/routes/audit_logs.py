"""/v1/organization/audit_logs: changes of keys and configuration, as OpenAI shows them. Admin keys only."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from deployments.state.audit_log import AuditEntry, AuditFilter, UnknownEntry
from serve_app.routes.endpoint import admin_caller, answers, json_response, services_of
from serve_app.routes.paging import Page, list_to_wire, parse_query, unknown_after
from serve_app.schemas.usage import AuditQuery


@answers(Page, of="openai.types.admin.organization.AuditLogListResponse", query=AuditQuery)
async def list_audit_logs(request: Request) -> Response:
    """Return the audit log, newest first."""
    await admin_caller(request)
    query = parse_query(request, AuditQuery)
    where = AuditFilter(
        events=_values(query.event_types),
        actor_ids=_values(query.actor_ids),
        targets=_values(query.resource_ids),
        accounts=_values(query.project_ids),
        since=_begin_of(query),
        until=_end_of(query),
    )
    try:
        page = await services_of(request).audit.page(where, query.limit, after=query.after, before=query.before)
    except UnknownEntry as unknown:
        raise unknown_after(str(unknown.args[0])) from None
    return json_response(list_to_wire([entry_to_wire(entry) for entry in page.entries], has_more=page.has_more))


def entry_to_wire(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as OpenAI shows it, with the change under the name of the event."""
    actor = entry.actor
    shown: dict[str, Any]
    if actor.kind == "api_key":
        shown = {"type": "api_key", "api_key": {"id": actor.id, "type": "user"}}
    else:  # OpenAI knows keys and sessions only.
        name = actor.id if actor.kind == "session" else f"{actor.kind}:{actor.id}"
        shown = {"type": "session", "session": {"user": {"id": name}}}
    changed: dict[str, Any] = {"id": entry.target}
    details = dict(entry.details)
    if entry.event.startswith(("login.", "logout.")):
        shown["session"]["ip_address"] = details.pop("ip_address", None)
        changed |= details
    elif details:
        changed["data" if entry.event.endswith(".created") else "changes_requested"] = details
    return {
        "id": entry.entry_id,
        "object": "organization.audit_log",
        "type": entry.event,
        "effective_at": int(entry.at),
        "actor": shown,
        "project": None if entry.account is None else {"id": entry.account, "name": entry.account},
        entry.event: changed,
    }


def _begin_of(query: AuditQuery) -> float | None:
    """Return the earliest time that the query allows; clients use whole seconds."""
    begins = [query.effective_at_gte, None if query.effective_at_gt is None else query.effective_at_gt + 1]
    return max((begin for begin in begins if begin is not None), default=None)


def _end_of(query: AuditQuery) -> float | None:
    ends = [query.effective_at_lt, None if query.effective_at_lte is None else query.effective_at_lte + 1]
    return min((end for end in ends if end is not None), default=None)


def _values(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
