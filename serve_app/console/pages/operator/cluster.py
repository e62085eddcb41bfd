"""The operator's home, with what is wrong now and who uses the service, and the state of the cluster."""

import asyncio
import time
from typing import Any

from starlette.responses import Response

from deployments.state.usage.reading import UsageFilter, UsageSum
from deployments.state.usage.request_log import NUM_SEARCHED
from deployments.state.usage.rollups import WIDTH_S, start_of
from serve_app.console.pages.figures import cost_of
from serve_app.console.visit import Visit
from serve_app.errors.api import NotFound
from serve_app.telemetry.health import Problem, find_problems, state_of

_HOUR_S = 3600
_LOOK_S = 5
_NUM_SHOWN = 8
_NOTHING_SEEN: dict[str, Any] = {"deployments": [], "nodes": [], "engines": [], "tools": []}


async def show_home(visit: Visit) -> Response:
    """Show what is wrong now, the load of the models, the largest accounts and the newest errors, live."""
    services, now = visit.services, time.time()
    seen, problems = _NOTHING_SEEN, []
    if services.cluster is not None:
        try:
            async with asyncio.timeout(_LOOK_S):
                seen = await services.cluster.look()
        except TimeoutError:
            problems.append(Problem(f"Ray Serve has not answered within {_LOOK_S} seconds.", ""))
    values = {
        "seen": seen,
        "problems": [*problems, *find_problems(seen, services.metrics)],
        "starting": [one for one in seen["deployments"] if state_of(one) == "starting"],
        "num_searched": NUM_SEARCHED,
        "failures": await services.request_log.failures(now - _HOUR_S, _NUM_SHOWN),
        **await _load(visit, now),
    }
    return visit.page("operator/home_state.html" if visit.is_fragment else "operator/home.html", **values)


async def show_cluster(visit: Visit) -> Response:
    """Show deployments, nodes, and how busy the engines are."""
    cluster = visit.services.cluster
    if cluster is None:
        raise NotFound("This service does not show its cluster.")
    seen = await cluster.look()
    values: dict[str, Any] = {"seen": seen, "deployments": [(one, state_of(one)) for one in seen["deployments"]]}
    return visit.page("operator/cluster_state.html" if visit.is_fragment else "operator/cluster.html", **values)


async def _load(visit: Visit, now: float) -> dict[str, Any]:
    """Return the figures of the last hour, and the largest accounts by tokens since midnight (UTC)."""
    usage, ran = visit.services.usage, UsageFilter(has_run=True)
    end = start_of(now, "1m") + WIDTH_S["1m"]
    (hour,) = await usage.totals("1m", end - _HOUR_S, end, where=ran)
    latency = await usage.latency("1m", end - _HOUR_S, end, by_model=False, as_one=True)
    accounts = await usage.totals("1d", now, now + 1, group_by=("account",), where=ran)
    accounts.sort(key=_tokens, reverse=True)
    return {
        "hour": hour,
        "ttft": next((one.p95_s for one in latency if one.metric == "ttft"), None),
        "accounts": [(one, _tokens(one), cost_of(one)) for one in accounts[:_NUM_SHOWN]],
    }


def _tokens(one: UsageSum) -> int:
    return one.prompt_tokens + one.completion_tokens
