"""The audit log, for operators: who did what with keys and configuration."""

from starlette.responses import Response

from deployments.state.audit_log import AuditFilter, UnknownEntry
from serve_app.console.visit import Visit
from serve_app.errors.api import BadRequest, Unavailable

_PAGE_SIZE = 50


async def list_entries(visit: Visit) -> Response:
    """Show the entries, newest first."""
    log, after, account = visit.services.audit, visit.query("after") or None, visit.query("account").strip()
    if log is None:
        raise Unavailable("The audit log cannot be read in this service.")
    try:
        page = await log.page(AuditFilter(accounts=(account,) if account else None), _PAGE_SIZE, after=after)
    except UnknownEntry:
        raise BadRequest("This page of the log is not there.") from None
    more = page.entries[-1].entry_id if page.has_more else ""
    return visit.page("audit.html", entries=page.entries, more=more, after=after, account=account)
