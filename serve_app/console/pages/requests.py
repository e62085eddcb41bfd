"""The request log: a filtered list, the same as CSV, and one request with its timeline. Never content."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response, StreamingResponse

from deployments.models.price import COST_PER_UNIT
from deployments.operations import Operation
from deployments.state.usage.record import CLIENT_CLOSED_REQUEST, RequestRecord
from deployments.state.usage.request_log import RequestFilter, UnknownCursor
from serve_app.console.pages.figures import accounts_of
from serve_app.console.pages.models import visible_cards
from serve_app.console.visit import HEADERS, Visit
from serve_app.errors.api import BadRequest, NotFound
from serve_app.operations.chat import ChatOperation
from serve_app.operations.responses.events.writer import response_id_of
from serve_app.routes.logs import requests_as_csv
from serve_app.telemetry.series import mean_inter_token_s

_PAGE_SIZE = 50
_STATES = {"": None, "ok": False, "error": True}
_REASONS = {
    400: "The body or a parameter was not valid.",
    401: "The API key was not accepted.",
    403: "The scopes or the retention policy of the key do not allow it.",
    404: "There is no such object, path or model.",
    408: "The body arrived too slowly.",
    413: "The body was too large.",
    429: "The account or the model had no room for it.",
    CLIENT_CLOSED_REQUEST: "The client disconnected before its answer was complete.",
    500: "The service failed. The operator can find the request id in the log.",
    503: "A part that the request needs was away. Try again.",
}
_LIMITS = {
    "requests_per_minute": "The key had used up its requests for this minute.",
    "tokens_per_minute": "The key had used up its tokens for this minute, or the request needs more than its limit.",
    "calls_per_minute": "The key had used up its calls for this minute, other than those to models.",
}
_STORING = {Operation.RESPONSES: ("/v1/responses",), Operation.CHAT: ("/v1/chat/completions", "/v1/messages")}
"""By the operation: the routes whose answers it stores."""


async def list_requests(visit: Visit) -> Response:
    """Show the request log, newest first."""
    where = _filter_of(visit)
    try:
        page = await visit.services.request_log.page(where, _PAGE_SIZE, visit.after)
    except UnknownCursor:
        raise BadRequest("This page of the log does not exist.") from None
    kept = visit.request.url.include_query_params(after="x").remove_query_params("after").query
    values: dict[str, Any] = {
        "records": [(record, speed_of(record)) for record in page.records],
        "more": page.next_cursor or "",
        "kept": kept,
        "cost_per_unit": COST_PER_UNIT,
        "names": await _names(visit, page.records),
    }
    if visit.is_fragment:
        return visit.page("request_rows.html", **values)
    keys = await visit.services.keys.list_keys(where.account, include_revoked=True) if where.account else []
    return visit.page("requests.html", **values, models=visible_cards(visit), keys=keys)


async def export_requests(visit: Visit) -> Response:
    """Send all requests that match the filters as CSV, newest first."""
    pages = visit.services.request_log.every(_filter_of(visit))
    headers = {**HEADERS, "content-disposition": 'attachment; filename="requests.csv"'}
    return StreamingResponse(requests_as_csv(pages), headers=headers, media_type="text/csv")


async def show_request(visit: Visit) -> Response:
    """Show one request: its timeline, what it led to, and the reason if it was refused."""
    accounts, request_id = accounts_of(visit), visit.request.path_params["request_id"]
    where = RequestFilter(account=accounts[0] if accounts else None, request_id=request_id)
    page = await visit.services.request_log.page(where, 1)
    if not page.records:
        raise NotFound("This account has no such request, or it is too old.")
    record, storage = page.records[0], visit.services.operations.responses.storage
    response_id, chat_id = response_id_of(record.request_id), ChatOperation.answer_id(record.request_id)
    return visit.page(
        "request.html",
        record=record,
        reason=None if record.status < 400 else _reason(record),
        steps=_steps(record),
        speed=speed_of(record),
        cost=record.cost / COST_PER_UNIT,
        has_price=visit.services.prices.of(record.model) is not None,
        key_name=(await _names(visit, [record])).get(record.key_id or ""),
        response_id=await _stored(visit, record, Operation.RESPONSES, storage.responses.load, response_id),
        chat_id=await _stored(visit, record, Operation.CHAT, storage.chats.load, chat_id),
    )


def _filter_of(visit: Visit) -> RequestFilter:
    """Return the filters of the query.

    Raises:
        BadRequest: a time is not valid.
    """
    accounts = accounts_of(visit)
    return RequestFilter(
        account=accounts[0] if accounts else None,
        key_id=visit.query("key_id").strip() or None,
        model=visit.query("model").strip() or None,
        code=visit.query("code").strip() or None,
        request_id=visit.query("request_id").strip() or None,
        batch_id=visit.query("batch_id").strip() or None,
        is_error=_STATES.get(visit.query("state")),
        since=_time_of(visit.query("from")),
        until=_time_of(visit.query("to")),
    )


def _time_of(text: str) -> float | None:
    """Return a time of a form (UTC) in Unix seconds, None for an empty one."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest("A time is not valid. Write it like 2026-01-31T12:00.") from None


async def _names(visit: Visit, records: Sequence[RequestRecord]) -> dict[str, str]:
    found = await visit.services.keys.find_all(list({record.key_id for record in records if record.key_id}))
    return {key_id: key.name for key_id, key in found.items()}


def _reason(record: RequestRecord) -> str:
    if record.param in _LIMITS:
        return _LIMITS[record.param]
    return _REASONS.get(record.status, "It was refused.")


def speed_of(record: RequestRecord) -> float | None:
    """Return the tokens per second of a stream after its first token, None if unknown."""
    between_s = mean_inter_token_s(record)
    return 1 / between_s if between_s else None


def _steps(record: RequestRecord) -> list[tuple[str, float, float]]:
    """Return the name of each step of an answer, and its begin and length in seconds."""
    ends: Mapping[str, float | None] = {
        "Queue": record.queued_s,
        "First token" if record.queued_s is None else "Prompt": record.ttft_s,
        "Answer" if record.ttft_s is None else "Tokens": record.total_s,
    }
    steps, begin = [], 0.0
    for name, end in ends.items():
        if end is not None:
            steps.append((name, begin, max(end - begin, 0.0)))
            begin = max(begin, end)
    return steps


async def _stored(
    visit: Visit, record: RequestRecord, operation: Operation, load: Callable[[str, str], Awaitable[Any]], an_id: str
) -> str | None:
    """Return the id of the stored answer to a request of an operation, None if there is none."""
    if record.route not in _STORING[operation] or record.account != visit.account or not visit.may(operation):
        return None
    return None if await load(visit.account, an_id) is None else an_id
