"""/v1/organization/limits and /v1/organization/latency: the limits of keys and their use, the latency of answers.

An ordinary key sees its own account, if its scopes allow `usage`; an admin key sees all.
"""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.limits.window import WINDOW_S
from deployments.state.identity.keys import ApiKey
from deployments.state.usage.reading import Latency
from serve_app.routes.endpoint import answers, json_response, services_of
from serve_app.routes.paging import parse_query
from serve_app.routes.usage import accounts_of, page_response, periods_of
from serve_app.schemas.usage import MAX_LATENCY_BUCKETS, LatencyQuery, LimitQuery


class UsedLimit(TypedDict):
    """A limit of one minute, and how much of it is used."""

    limit: int
    used: int


class KeyLimits(TypedDict):
    """The limits of one key; `refused` requests in the last minute were answered with 429."""

    object: str
    api_key_id: str
    name: str
    project_id: str
    tier: str
    requests: UsedLimit
    tokens: UsedLimit
    refused: int


class LimitList(TypedDict):
    """The limits of keys."""

    object: str
    data: list[KeyLimits]
    has_more: bool


class Percentiles(TypedDict):
    """Percentiles of the latency of `num_requests` requests, in seconds, to within 2.5 %."""

    num_requests: int
    p50_s: float
    p95_s: float
    p99_s: float


class LatencyResult(TypedDict):
    """The latencies of one model. `time_to_first_token` is that of streams, None without any."""

    object: str
    model: str
    time_to_first_token: Percentiles | None
    total: Percentiles | None


class LatencyBucket(TypedDict):
    """The latencies of one period."""

    object: str
    start_time: int
    end_time: int
    results: list[LatencyResult]


class LatencyPage(TypedDict):
    """A page of periods."""

    object: str
    data: list[LatencyBucket]
    has_more: bool
    next_page: str | None


@answers(LimitList, query=LimitQuery)
async def list_limits(request: Request) -> Response:
    """List the limits of keys.

    With how much of the last minute is used, and how many requests were refused in it.
    """
    query = parse_query(request, LimitQuery)
    accounts = await accounts_of(request, None if query.project_id is None else [query.project_id])
    services = services_of(request)
    keys: list[ApiKey] = []
    if accounts is None or accounts:
        keys = await services.keys.list_keys(None if accounts is None else accounts[0])
    now = time.time()
    used = await services.used_in_minute([key.key_id for key in keys], now)
    refused = await services.request_log.num_refused(now - WINDOW_S, None if accounts is None else (*accounts, "")[0])
    data = [_limits_of(key, used.get(key.key_id, (0, 0)), refused.get(key.key_id, 0)) for key in keys]
    return json_response({"object": "list", "data": data, "has_more": False})


@answers(LatencyPage, query=LatencyQuery)
async def show_latency(request: Request) -> Response:
    """Latency by model.

    Percentiles by period, without batch requests.
    """
    query = parse_query(request, LatencyQuery)
    accounts = await accounts_of(request, query.project_ids)
    periods = periods_of(query, MAX_LATENCY_BUCKETS)
    results: dict[int, list[dict[str, Any]]] = {}
    if accounts is None or accounts:
        found = await services_of(request).usage.latency(
            periods.width,
            periods.start,
            periods.until,
            accounts=accounts,
            models=None if query.models is None else tuple(query.models),
        )
        for one in found:
            of_period = results.setdefault(one.start, [])
            if not of_period or of_period[-1]["model"] != one.model:
                shown = {"object": "organization.latency.result", "model": one.model}
                of_period.append({**shown, "time_to_first_token": None, "total": None})
            of_period[-1]["time_to_first_token" if one.metric == "ttft" else "total"] = _percentiles(one)
    return page_response(periods, results)


def _limits_of(key: ApiKey, used: tuple[int, int], num_refused: int) -> KeyLimits:
    return {
        "object": "organization.limit",
        "api_key_id": key.key_id,
        "name": key.name,
        "project_id": key.account,
        "tier": key.tier,
        "requests": {"limit": key.requests_per_minute, "used": used[0]},
        "tokens": {"limit": key.tokens_per_minute, "used": used[1]},
        "refused": num_refused,
    }


def _percentiles(one: Latency) -> Percentiles:
    return {
        "num_requests": one.num_requests,
        "p50_s": round(one.p50_s, 6),
        "p95_s": round(one.p95_s, 6),
        "p99_s": round(one.p99_s, 6),
    }
