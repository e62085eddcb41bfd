"""The logs of the organization: of requests, in pages or exported as CSV or JSON lines, and of changes (the audit log).

Of /v1/organization/requests, an ordinary key sees its own account, if its scopes allow `usage`; an admin key sees all.
/v1/organization/audit_logs has the changes of keys and configuration as OpenAI shows them, for admin keys only.
"""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from deployments.models.price import COST_PER_UNIT
from deployments.state.audit_log import AuditEntry, AuditFilter, UnknownEntry
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.request_log import RequestFilter, UnknownCursor
from deployments.state.usage.rollups import operation_of
from serve_app.errors.api import invalid_value
from serve_app.routes.endpoint import admin_caller, answers, json_response, services_of
from serve_app.routes.paging import Page, list_to_wire, parse_query, unknown_after
from serve_app.routes.usage import accounts_of
from serve_app.schemas.usage import AuditQuery, RequestLogQuery
from serve_app.telemetry.series import mean_inter_token_s

_NO_ACCOUNT = ""
_MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}


class LoggedRequest(TypedDict):
    """One request. Times are in Unix seconds, durations in seconds, the cost is in the currency of the service.

    `param` is the parameter at fault, or the limit that refused the request.
    """

    object: str
    request_id: str
    created_at: float
    project_id: str | None
    api_key_id: str | None
    tier: str | None
    operation: str
    method: str
    route: str
    model: str | None
    status: int
    code: str | None
    param: str | None
    stream: bool
    service_tier: str
    batch_id: str | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_s: float | None
    time_to_first_token_s: float | None
    tokens_per_s: float | None
    total_s: float
    file_search_calls: int
    web_search_calls: int
    code_interpreter_sessions: int
    cost: float


class RequestPage(TypedDict):
    """A page of the request log, newest first; `next` is the `after` of the page that follows."""

    object: str
    data: list[LoggedRequest]
    has_more: bool
    next: str | None


@answers(RequestPage, query=RequestLogQuery, exports=("text/csv", "application/jsonl"))
async def list_requests(request: Request) -> Response:
    """List requests.

    The request log, newest first. `format` exports all matching requests.
    """
    query = parse_query(request, RequestLogQuery)
    accounts = await accounts_of(request, None if query.project_id is None else [query.project_id])
    where = RequestFilter(
        account=None if accounts is None else accounts[0] if accounts else _NO_ACCOUNT,
        key_id=query.api_key_id,
        model=query.model,
        operation=query.operation,
        status=query.status,
        code=query.code,
        is_error=query.is_error,
        batch_id=query.batch_id,
        is_batch=query.batch,
        request_id=query.request_id,
        since=query.start_time,
        until=query.end_time,
    )
    log = services_of(request).request_log
    if query.format != "json":
        pages = log.every(where)
        body = requests_as_csv(pages) if query.format == "csv" else _as_lines(pages)
        headers = {
            "cache-control": "no-store",
            "content-disposition": f'attachment; filename="requests.{query.format}"',
        }
        return StreamingResponse(body, media_type=_MEDIA_TYPES[query.format], headers=headers)
    try:
        page = await log.page(where, query.limit, query.after)
    except UnknownCursor:
        raise invalid_value("Invalid 'after': take it from 'next' of the previous page.", "after") from None
    has_more = page.next_cursor is not None
    data = [request_to_wire(record) for record in page.records]
    return json_response({"object": "list", "data": data, "has_more": has_more, "next": page.next_cursor})


def request_to_wire(record: RequestRecord) -> LoggedRequest:
    """Return a logged request for a client."""
    inter_token_s = mean_inter_token_s(record)
    return {
        "object": "organization.request",
        "request_id": record.request_id,
        "created_at": record.at,
        "project_id": record.account,
        "api_key_id": record.key_id,
        "tier": record.tier,
        "operation": operation_of(record.route),
        "method": record.method,
        "route": record.route,
        "model": record.model,
        "status": record.status,
        "code": record.code,
        "param": record.param,
        "stream": record.stream,
        "service_tier": record.service_tier or "default",
        "batch_id": record.batch_id,
        "input_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.completion_tokens,
        "queued_s": record.queued_s,
        "time_to_first_token_s": record.ttft_s,
        "tokens_per_s": round(1 / inter_token_s, 3) if inter_token_s else None,
        "total_s": record.total_s,
        "file_search_calls": record.file_search_calls,
        "web_search_calls": record.web_search_calls,
        "code_interpreter_sessions": record.code_sessions,
        "cost": record.cost / COST_PER_UNIT,
    }


async def _as_lines(pages: AsyncIterator[Sequence[RequestRecord]]) -> AsyncIterator[bytes]:
    async for records in pages:
        yield b"".join(orjson.dumps(request_to_wire(record)) + b"\n" for record in records)


async def requests_as_csv(pages: AsyncIterator[Sequence[RequestRecord]]) -> AsyncIterator[bytes]:
    """Yield requests as lines of CSV, after a line of their names."""
    columns = [name for name in LoggedRequest.__annotations__ if name != "object"]
    yield (",".join(columns) + "\r\n").encode()
    async for records in pages:
        text = io.StringIO()
        writer = csv.writer(text)
        for record in records:
            shown = {**request_to_wire(record)}
            writer.writerow(["" if shown[name] is None else shown[name] for name in columns])
        yield text.getvalue().encode()


@answers(Page, of="openai.types.admin.organization.AuditLogListResponse", query=AuditQuery)
async def list_audit_logs(request: Request) -> Response:
    """List the audit log.

    Newest first.
    """
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
        entries, has_more = await services_of(request).audit.page(
            where, query.limit, after=query.after, before=query.before
        )
    except UnknownEntry as unknown:
        raise unknown_after(str(unknown.args[0])) from None
    return json_response(list_to_wire([entry_to_wire(entry) for entry in entries], has_more=has_more))


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
