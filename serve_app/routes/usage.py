"""/v1/organization/usage/* and /v1/organization/costs: usage by minute, hour and day, as OpenAI shows it.

A project is an account. An ordinary key sees its own account, if its scopes allow `usage`; an admin key sees all.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.database.tables.usage import Width
from deployments.state.usage.reading import Group, UsageFilter, UsageSum
from deployments.state.usage.rollups import WIDTH_S, start_of
from serve_app.errors.api import BadRequest, invalid_value
from serve_app.routes.costs import COUNTS as COST_COUNTS
from serve_app.routes.costs import costs_of
from serve_app.routes.endpoint import answers, caller, json_response, services_of
from serve_app.routes.paging import parse_query
from serve_app.schemas.usage import DEFAULT_BUCKETS, MAX_BUCKETS, CostQuery, PeriodQuery, UsageQuery

_ANSWER = "openai.types.admin.organization.UsageCompletionsResponse"
_TEXT = ("chat", "completions", "responses")
_GROUPS: Mapping[str, Group] = {
    "project_id": "account",
    "api_key_id": "key_id",
    "model": "model",
    "batch": "is_batch",
    "service_tier": "service_tier",
    "operation": "operation",
}
_PAGE = "page_"

Results = Mapping[int, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of one page: `num` of a width from `start` on, of a range that ends at `end` (Unix seconds)."""

    width: Width
    start: int
    num: int
    end: float

    @property
    def until(self) -> float:
        """The end of the page."""
        return min(self.end, self.start + self.num * WIDTH_S[self.width])


async def accounts_of(request: Request, project_ids: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the accounts that the request asks for and may see, None for all. Raises ApiError as `caller` does."""
    principal = await caller(request, Operation.USAGE)
    if principal.is_admin:
        return None if project_ids is None else tuple(project_ids)
    return (principal.account,) if project_ids is None or principal.account in project_ids else ()


def periods_of(query: PeriodQuery, max_buckets: Mapping[Width, int] = MAX_BUCKETS) -> Periods:
    """Return the periods of the page that a query asks for.

    Raises:
        BadRequest: there are too many, the range ends before it begins, or the page is not valid.
    """
    width = query.bucket_width
    num = query.limit or DEFAULT_BUCKETS[width]
    if num > max_buckets[width]:
        raise BadRequest(
            f"Invalid 'limit': with 'bucket_width={width}' it may be {max_buckets[width]} at most.",
            param="limit",
            code="integer_above_max_value",
        )
    end = time.time() if query.end_time is None else query.end_time
    if query.end_time is not None and query.end_time <= query.start_time:
        raise invalid_value("Invalid 'end_time': it must be after 'start_time'.", "end_time")
    start = start_of(query.start_time, width)
    if query.page is not None:
        place = query.page.removeprefix(_PAGE)
        if not place.isascii() or not place.isdigit() or len(place) > 12 or int(place) % WIDTH_S[width]:
            raise invalid_value("Invalid 'page': take it from the previous page.", "page")
        start = max(start, int(place))
    return Periods(width, start, num, end)


def page_response(periods: Periods, results: Results) -> Response:
    """Return a page of buckets with their results, including empty ones."""
    width_s = WIDTH_S[periods.width]
    starts = range(periods.start, max(periods.start, -int(-periods.until // 1)), width_s)
    buckets = [
        {"object": "bucket", "start_time": start, "end_time": start + width_s, "results": results.get(start, [])}
        for start in starts
    ]
    following = periods.start + periods.num * width_s
    has_more = following < periods.end
    next_page = f"{_PAGE}{following}" if has_more else None
    return json_response({"object": "page", "data": buckets, "has_more": has_more, "next_page": next_page})


async def _sums(
    request: Request, query: UsageQuery, where: UsageFilter, groups: Iterable[str], counts: Sequence[str]
) -> tuple[Periods, list[UsageSum]]:
    """Return the periods and the sums that a query asks for; `groups` are those of this kind of usage."""
    accounts = await accounts_of(request, query.project_ids)
    where = replace(
        where,
        accounts=accounts,
        key_ids=None if query.api_key_ids is None else tuple(query.api_key_ids),
        models=None if query.models is None else tuple(query.models),
        is_batch=query.batch,
    )
    if query.user_ids is not None:  # No request belongs to a user.
        where = replace(where, accounts=())
    periods = periods_of(query)
    group_by = [_GROUPS[name] for name in query.group_by if name in groups and name in _GROUPS]
    return periods, await services_of(request).usage.buckets(
        periods.width, periods.start, periods.until, group_by=group_by, where=where, counts=counts
    )


def _by_start(sums: Iterable[UsageSum], to_wire: Callable[[UsageSum], dict[str, Any]]) -> Results:
    results: dict[int, list[dict[str, Any]]] = {}
    for one in sums:
        results.setdefault(one.start, []).append(to_wire(one))
    return results


def _groups(query: UsageQuery, *names: str) -> Callable[[UsageSum], dict[str, Any]]:
    """Return a function from a sum to its group's fields, null where the query does not group by them."""
    shown: dict[str, Any] = dict.fromkeys(names)
    if "api_source" in shown and "api_source" in query.group_by:
        shown["api_source"] = "unlabeled"
    fields = [
        (name, UsageSum._fields.index(_GROUPS[name])) for name in names if name in query.group_by and name in _GROUPS
    ]

    def grouped(one: UsageSum) -> dict[str, Any]:
        values = shown.copy()
        for name, place in fields:
            values[name] = one[place]
        if values.get("service_tier") == "":
            values["service_tier"] = "default"
        return values

    return grouped


_ALL = ("project_id", "user_id", "api_key_id", "model", "batch", "service_tier", "operation", "api_source")


@answers(_ANSWER, query=UsageQuery)
async def show_completions(request: Request) -> Response:
    """Usage of chats, completions and responses.

    Tokens and requests by period.
    """
    query = parse_query(request, UsageQuery)
    counts = ("num_requests", "prompt_tokens", "completion_tokens", "cached_tokens")
    periods, sums = await _sums(request, query, UsageFilter(operations=_TEXT, has_run=True), _ALL, counts)
    groups = _groups(query, *_ALL)

    def to_wire(one: UsageSum) -> dict[str, Any]:
        uncached = one.prompt_tokens - one.cached_tokens
        return {
            "object": "organization.usage.completions.result",
            "input_tokens": one.prompt_tokens,
            "output_tokens": one.completion_tokens,
            "num_model_requests": one.num_requests,
            "input_cached_tokens": one.cached_tokens,
            "input_uncached_tokens": uncached,
            "input_text_tokens": uncached,
            "output_text_tokens": one.completion_tokens,
            "input_cached_text_tokens": one.cached_tokens,
            "input_audio_tokens": 0,
            "output_audio_tokens": 0,
            **groups(one),
        }

    return page_response(periods, _by_start(sums, to_wire))


@answers(_ANSWER, query=UsageQuery)
async def show_embeddings(request: Request) -> Response:
    """Usage of embeddings, reranking and scores.

    Tokens and requests by period.
    """
    return await _show_input(request, UsageFilter(other_operations=(*_TEXT, "moderations"), has_run=True), "embeddings")


@answers(_ANSWER, query=UsageQuery)
async def show_moderations(request: Request) -> Response:
    """Usage of moderations.

    Tokens and requests by period.
    """
    return await _show_input(request, UsageFilter(operations=("moderations",)), "moderations")


async def _show_input(request: Request, where: UsageFilter, kind: str) -> Response:
    query = parse_query(request, UsageQuery)
    names = ("project_id", "user_id", "api_key_id", "model", "batch", "operation")
    periods, sums = await _sums(request, query, where, names, ("num_requests", "num_errors", "prompt_tokens"))
    groups = _groups(query, *names)

    def to_wire(one: UsageSum) -> dict[str, Any]:
        return {
            "object": f"organization.usage.{kind}.result",
            "input_tokens": one.prompt_tokens,
            "num_model_requests": one.num_requests - (0 if where.has_run else one.num_errors),
            **groups(one),
        }

    return page_response(periods, _by_start(sums, to_wire))


@answers(_ANSWER, query=UsageQuery)
async def show_vector_stores(request: Request) -> Response:
    """Usage of vector stores.

    Stored bytes by period.
    """
    query = parse_query(request, UsageQuery)
    accounts = await accounts_of(request, query.project_ids)
    periods = periods_of(query)
    found = await services_of(request).usage.vector_store_bytes(
        periods.width, periods.start, periods.until, accounts=accounts, by_account="project_id" in query.group_by
    )
    results: dict[int, list[dict[str, Any]]] = {}
    for one in found:
        shown = {"object": "organization.usage.vector_stores.result", "usage_bytes": one.num_bytes}
        results.setdefault(one.start, []).append({**shown, "project_id": one.account})
    return page_response(periods, results)


def _show_calls(kind: str, count: str, field: str, *names: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a tool: `count` is the sum of its uses, `field` its name on the wire."""

    async def show(request: Request) -> Response:
        query = parse_query(request, UsageQuery)
        periods, sums = await _sums(request, query, UsageFilter(), names, (count, "num_requests"))
        groups = _groups(query, *names)

        def to_wire(one: UsageSum) -> dict[str, Any]:
            shown = {"object": f"organization.usage.{kind}.result", field: getattr(one, count)}
            if kind == "web_searches":
                shown |= {"num_model_requests": one.num_requests, "context_level": None}
            return {**shown, **groups(one)}

        used = [one for one in sums if getattr(one, count)]
        return page_response(periods, _by_start(used, to_wire))

    return show


show_code_sessions = _show_calls("code_interpreter_sessions", "code_sessions", "num_sessions", "project_id")
show_file_searches = _show_calls("file_searches", "file_search_calls", "num_requests", *_ALL[:3])
show_web_searches = _show_calls("web_searches", "web_search_calls", "num_requests", *_ALL[:4])
for _endpoint, _summary in (
    (show_code_sessions, "Usage of the code interpreter.\n\nNew containers by period."),
    (show_file_searches, "Usage of file search.\n\nCalls of the tool by period."),
    (show_web_searches, "Usage of web search.\n\nCalls of the tool by period."),
):
    _endpoint.__doc__ = _summary
    answers(_ANSWER, query=UsageQuery)(_endpoint)


@answers("openai.types.admin.organization.UsageCostsResponse", query=CostQuery)
async def show_costs(request: Request) -> Response:
    """Costs.

    By period, at the prices of when the requests ran.
    """
    query = parse_query(request, CostQuery)
    accounts = await accounts_of(request, query.project_ids)
    periods = periods_of(query)
    by_item = "line_item" in query.group_by or query.line_items is not None
    group_by = [_GROUPS[name] for name in ("project_id", "api_key_id") if name in query.group_by]
    services = services_of(request)
    sums = await services.usage.buckets(
        periods.width,
        periods.start,
        periods.until,
        group_by=[*group_by, "model"] if by_item else group_by,
        where=UsageFilter(
            accounts=accounts, key_ids=None if query.api_key_ids is None else tuple(query.api_key_ids), has_run=True
        ),
        counts=COST_COUNTS,
    )
    return page_response(periods, costs_of(sums, query, services.currency))
