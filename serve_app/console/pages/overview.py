"""The overview: requests, tokens, errors, cost and latencies of an account, for operators of all, and limits in use."""

import time
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.responses import Response

from deployments.state.database.tables import Width
from deployments.state.usage.reading import UsageFilter, UsageReader, UsageSum
from deployments.state.usage.rollups import WIDTH_S, start_of
from serve_app.console.visit import Visit, may_read_usage
from serve_app.errors.api import Unavailable

SPANS: dict[str, tuple[str, Width, int]] = {
    "hour": ("Last hour", "1m", 3_600),
    "day": ("Last day", "1h", 86_400),
    "month": ("Last 30 days", "1d", 30 * 86_400),
}
"""What can be shown: its name, the width of its periods, and its seconds."""
_PICO = 10**12


async def show_overview(visit: Visit) -> Response:
    """Show the figures of a span, live; to a key that may not read usage, its limits alone."""
    span = visit.query("span") if visit.query("span") in SPANS else "hour"
    values: dict[str, Any] = {"span": span, "spans": SPANS, "quota": visit.services.admission.quota(visit.principal)}
    values |= await _figures(visit, span) if may_read_usage(visit.principal) else {"totals": None}
    return visit.page("overview_figures.html" if visit.is_fragment else "overview.html", **values)


def usage_of(visit: Visit) -> UsageReader:
    """Return what reads usage.

    Raises:
        Unavailable: this service adds none up.
    """
    if visit.services.usage is None:
        raise Unavailable("Usage cannot be read in this service.")
    return visit.services.usage


def accounts_of(visit: Visit) -> tuple[str, ...] | None:
    """Return the accounts that a page shows: the session's own, or for operators the one they ask for, None for all."""
    if not visit.principal.is_admin:
        return (visit.account,)
    asked = visit.query("account").strip()
    return (asked,) if asked else None


async def _figures(visit: Visit, span: str) -> dict[str, Any]:
    usage, accounts = usage_of(visit), accounts_of(visit)
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
    """Return the title and the data of each chart, as JSON: all periods of a span, empty ones too."""
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
