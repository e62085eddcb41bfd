"""The request log: filtered, paged, and each request's timeline with the reason of a refusal. Never content."""

from typing import Any

from starlette.responses import Response

from deployments.state.usage.record import CLIENT_CLOSED_REQUEST, RequestRecord
from deployments.state.usage.request_log import RequestFilter, RequestLogReader, UnknownCursor
from serve_app.console.pages.models import visible_cards
from serve_app.console.pages.overview import accounts_of
from serve_app.console.visit import Visit
from serve_app.errors.api import BadRequest, NotFound, Unavailable

_PAGE_SIZE = 50
_STATES = {"": None, "ok": False, "error": True}
_REASONS = {
    400: "The body or a parameter was at fault.",
    401: "The API key was not accepted.",
    403: "The scopes or the retention of the key do not allow it.",
    404: "There was nothing under that id, path or model.",
    408: "The body came too slowly.",
    413: "The body was too large.",
    429: "A limit of the key was used up, or no place was free.",
    CLIENT_CLOSED_REQUEST: "The client left before its answer was complete.",
    500: "The service failed. The operator finds the request id in the log.",
    503: "Something that the request needs was away; it can be sent again.",
}


async def list_requests(visit: Visit) -> Response:
    """Show the log, newest first."""
    accounts, after = accounts_of(visit), visit.query("after") or None
    state = visit.query("state") if visit.query("state") in _STATES else ""
    given = {name: visit.query(name).strip() for name in ("model", "code", "request_id", "batch_id")}
    where = RequestFilter(
        account=accounts[0] if accounts else None,
        is_error=_STATES[state],
        model=given["model"] or None,
        code=given["code"] or None,
        request_id=given["request_id"] or None,
        batch_id=given["batch_id"] or None,
    )
    try:
        page = await _log(visit).page(where, _PAGE_SIZE, after)
    except UnknownCursor:
        raise BadRequest("This page of the log is not there.") from None
    kept = visit.request.url.include_query_params(after="x").remove_query_params("after").query
    values: dict[str, Any] = {"records": page.records, "more": page.next_cursor or "", "after": after, "kept": kept}
    values |= {"given": given, "state": state, "models": visible_cards(visit), "account": visit.query("account")}
    return visit.page("request_rows.html" if visit.is_fragment else "requests.html", **values)


async def show_request(visit: Visit) -> Response:
    """Show one request: when it waited, began to be answered and ended, and why it was refused."""
    accounts, request_id = accounts_of(visit), visit.request.path_params["request_id"]
    where = RequestFilter(account=accounts[0] if accounts else None, request_id=request_id)
    page = await _log(visit).page(where, 1)
    if not page.records:
        raise NotFound("This account has no such request, or it is too old.")
    record = page.records[0]
    reason = None if record.status < 400 else _REASONS.get(record.status, "It was refused.")
    return visit.page("request.html", record=record, reason=reason, speed=_speed(record), cost=record.cost / 10**12)


def _log(visit: Visit) -> RequestLogReader:
    if visit.services.request_log is None:
        raise Unavailable("The request log cannot be read in this service.")
    return visit.services.request_log


def _speed(record: RequestRecord) -> float | None:
    """Return the tokens a second after the first, None where they are not known."""
    if record.ttft_s is None or record.completion_tokens < 2 or record.total_s <= record.ttft_s:
        return None
    return (record.completion_tokens - 1) / (record.total_s - record.ttft_s)
