"""The overview: requests, tokens, cost, latencies and limits in use; for a new account, a first program."""

import time
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from deployments.state.database.tables.usage import Width
from deployments.state.usage.reading import UsageFilter, UsageSum
from deployments.state.usage.rollups import WIDTH_S, start_of
from serve_app.console.pages.figures import Series, accounts_of, add_up, chart, cost_of, has_prices
from serve_app.console.pages.models import visible_cards
from serve_app.console.snippets import environment, programs
from serve_app.console.visit import Visit, may_read_usage

SPANS: dict[str, tuple[str, Width, int]] = {
    "hour": ("Last hour", "1m", 3_600),
    "day": ("Last day", "1h", 86_400),
    "month": ("Last 30 days", "1d", 30 * 86_400),
}
"""The spans that can be shown: name, width of the periods, and seconds."""


async def show_overview(visit: Visit) -> Response:
    """Show the figures of a span, live. A key that may not read usage sees its limits only."""
    span = visit.query("span") if visit.query("span") in SPANS else "hour"
    values: dict[str, Any] = {"span": span, "spans": SPANS, "quota": visit.services.admission.quota(visit.principal)}
    values |= await _figures(visit, span) if may_read_usage(visit.principal) else {"figures": None}
    if visit.is_fragment:
        return visit.page("overview_figures.html", **values)
    return visit.page("overview.html", **values, start=await _start(visit) if await _is_new(visit) else None)


async def _figures(visit: Visit, span: str) -> dict[str, Any]:
    usage, accounts = visit.services.usage, accounts_of(visit)
    _, width, seconds = SPANS[span]
    step = WIDTH_S[width]
    end = start_of(time.time(), width) + step
    start, where = end - seconds, UsageFilter(accounts=accounts)
    by_model = await usage.totals(width, start, end, group_by=("model",), where=where)
    periods = await usage.buckets(width, start, end, where=where)
    latency = await usage.latency(width, start, end, accounts=accounts, by_model=False, as_one=True)
    figures = add_up(by_model)
    ranked = sorted(by_model, key=lambda one: -one.num_requests)
    return {
        "figures": figures,
        "has_prices": has_prices(visit, figures),
        "models": [(one, cost_of(one)) for one in ranked if one.model],
        "latency": {one.metric: one for one in latency},
        "charts": _charts(periods, range(start, end, step)),
        "account": accounts[0] if accounts else "",
    }


def _charts(periods: Sequence[UsageSum], times: range) -> list[tuple[str, str]]:
    """Return the title and the data of each chart, with all periods of a span."""
    by_start = {one.start: one for one in periods}
    found = [by_start.get(at, UsageSum(at)) for at in times]
    answered = Series("Answered", [one.num_requests - one.num_errors for one in found])
    errors = Series("Errors", [one.num_errors for one in found], is_error=True)
    prompts = Series("Prompt", [one.prompt_tokens for one in found])
    completions = Series("Completion", [one.completion_tokens for one in found])
    return [("Requests", chart(times, [answered, errors])), ("Tokens", chart(times, [prompts, completions]))]


async def _is_new(visit: Visit) -> bool:
    """Return whether the account has not used the service in the last 30 days."""
    _, width, seconds = SPANS["month"]
    now = time.time()
    where = UsageFilter(accounts=(visit.account,), has_run=True)
    (used,) = await visit.services.usage.totals(width, now - seconds, now + 1, where=where)
    return not used.num_requests


async def _start(visit: Visit) -> dict[str, Any]:
    """Return what a first program needs: the address, the key as it may be shown, and the program."""
    base_url = str(visit.request.base_url).rstrip("/") + "/v1"
    found = next((found for card in visible_cards(visit) if (found := programs(card.id, _operations(visit, card)))), [])
    key = await visit.services.keys.show(visit.principal.key_id)
    return {"base_url": base_url, "key": key.display, "environment": environment(base_url), "programs": found}


def _operations(visit: Visit, card: Any) -> list[str]:
    return [operation for operation in card.operations if visit.may(operation)]
