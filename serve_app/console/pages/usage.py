"""The overview (requests, tokens, errors, cost, latencies and limits in use) and the request log. Never content."""

import time
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.responses import Response

from deployments.state.database.tables.usage import Width
from deployments.state.usage.reading import UsageFilter, UsageSum
from deployments.state.usage.record import CLIENT_CLOSED_REQUEST, RequestRecord
from deployments.state.usage.request_log import RequestFilter, UnknownCursor
from deployments.state.usage.rollups import WIDTH_S, start_of
from serve_app.console.pages.models import visible_cards
from serve_app.console.visit import Visit, may_read_usage
from serve_app.errors.api import BadRequest, NotFound

SPANS: dict[str, tuple[str, Width, int]] = {
    "hour": ("Last hour", "1m", 3_600),
    "day": ("Last day", "1h", 86_400),
    "month": ("Last 30 days", "1d", 30 * 86_400),
}
"""The spans that can be shown: name, width of the periods, and seconds."""
_PICO = 10**12
_PAGE_SIZE = 50
_STATES = {"": None, "ok": False, "error": True}
_REASONS = {
    400: "The body or a parameter was not valid.",
    401: "The API key was not accepted.",
    403: "The scopes or the retention policy of the key do not allow it.",
    404: "There is no such object, path or model.",
    408: "The body arrived too slowly.",
    413: "The body was too large.",
    429: "A limit of the key was used up, or the model was at capacity.",
    CLIENT_CLOSED_REQUEST: "The client disconnected before its answer was complete.",
    500: "The service failed. The operator can find the request id in the log.",
    503: "A part that the request needs was away. Try again.",
}


async def show_overview(visit: Visit) -> Response:
    """Show the figures of a span, live. A key that may not read usage sees its limits only."""
    span = visit.query("span") if visit.query("span") in SPANS else "hour"
    values: dict[str, Any] = {"span": span, "spans": SPANS, "quota": visit.services.admission.quota(visit.principal)}
    values |= await _figures(visit, span) if may_read_usage(visit.principal) else {"totals": None}
    return visit.page("overview_figures.html" if visit.is_fragment else "overview.html", **values)


def _accounts_of(visit: Visit) -> tuple[str, ...] | None:
    """Return the accounts of a page: the session's own; for operators the chosen account, or None for all."""
    if not visit.principal.is_admin:
        return (visit.account,)
    asked = visit.query("account").strip()
    return (asked,) if asked else None


async def _figures(visit: Visit, span: str) -> dict[str, Any]:
    usage, accounts = visit.services.usage, _accounts_of(visit)
    _, width, seconds = SPANS[span]
    end = start_of(time.time(), width) + WIDTH_S[width]
    start, where = end - seconds, UsageFilter(accounts=accounts)
    (totals,) = await usage.totals(width, start, end, where=where)
    by_model = await usage.totals(width, start, end, group_by=("model",), where=where)
    periods = await usage.buckets(width, start, end, where=where)
    latency = await usage.latency(width, start, end, accounts=accounts, by_model=False, as_one=True)
    return {
        "totals": totals,
        "cost": totals.cost / _PICO,
        "models": [(one, one.cost / _PICO) for one in sorted(by_model, key=lambda one: -one.num_requests) if one.model],
        "latency": {one.metric: one for one in latency},
        "charts": _charts(periods, start, end, WIDTH_S[width]),
        "account": accounts[0] if accounts else "",
    }


def _charts(periods: Sequence[UsageSum], start: int, end: int, step: int) -> list[tuple[str, str]]:
    """Return the title and the data (JSON) of each chart, with all periods of a span."""
    times = list(range(start, end, step))
    by_start = {one.start: one for one in periods}
    found = [by_start.get(at, UsageSum(start=at)) for at in times]

    def chart(*series: tuple[str, str]) -> str:
        drawn = [{"label": label, "values": [getattr(one, name) for one in found]} for label, name in series]
        return orjson.dumps({"times": times, "series": drawn}).decode()

    return [
        ("Requests", chart(("All", "num_requests"), ("Errors", "num_errors"))),
        ("Tokens", chart(("In", "prompt_tokens"), ("Out", "completion_tokens"))),
    ]


async def list_requests(visit: Visit) -> Response:
    """Show the request log, newest first."""
    accounts = _accounts_of(visit)
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
        page = await visit.services.request_log.page(where, _PAGE_SIZE, visit.after)
    except UnknownCursor:
        raise BadRequest("This page of the log does not exist.") from None
    kept = visit.request.url.include_query_params(after="x").remove_query_params("after").query
    values: dict[str, Any] = {"records": page.records, "more": page.next_cursor or "", "kept": kept}
    values |= {"given": given, "state": state, "models": visible_cards(visit), "account": visit.query("account")}
    return visit.page("request_rows.html" if visit.is_fragment else "requests.html", **values)


async def show_request(visit: Visit) -> Response:
    """Show one request: its timeline, and the reason if it was refused."""
    accounts, request_id = _accounts_of(visit), visit.request.path_params["request_id"]
    where = RequestFilter(account=accounts[0] if accounts else None, request_id=request_id)
    page = await visit.services.request_log.page(where, 1)
    if not page.records:
        raise NotFound("This account has no such request, or it is too old.")
    record = page.records[0]
    reason = None if record.status < 400 else _REASONS.get(record.status, "It was refused.")
    return visit.page("request.html", record=record, reason=reason, speed=_speed(record), cost=record.cost / 10**12)


def _speed(record: RequestRecord) -> float | None:
    """Return the tokens per second after the first token, None if unknown."""
    if record.ttft_s is None or record.completion_tokens < 2 or record.total_s <= record.ttft_s:
        return None
    return (record.completion_tokens - 1) / (record.total_s - record.ttft_s)
