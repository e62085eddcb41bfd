"""Usage between two dates, by model, key or account: figures, stacked bars, a table, and the same as CSV."""

import csv
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from urllib.parse import quote

from starlette.responses import Response

from deployments.models.price import COST_PER_UNIT
from deployments.state.database.tables.usage import Width
from deployments.state.usage.reading import Group, UsageFilter, UsageSum
from deployments.state.usage.rollups import KEPT_S, WIDTH_S
from serve_app.console.pages.figures import Figures, Series, accounts_of, add_up, chart, cost_of, has_prices
from serve_app.console.rendering import show_machine_time
from serve_app.console.visit import HEADERS, Visit
from serve_app.errors.api import BadRequest

GROUPS: Mapping[str, Group] = {"model": "model", "key": "key_id", "account": "account"}
MEASURES = {"calls": "Model calls", "tokens": "Tokens", "cost": "Cost"}
_DEFAULT_DAYS = 30
_MAX_DAYS = 366
_HOURLY_DAYS = 3
"""So short a range is shown by the hour."""
_MAX_SERIES = 5
_NO_MODEL = ""


@dataclass(frozen=True)
class Range:
    """The days from `first` to `last` (UTC), both shown."""

    first: date
    last: date

    @property
    def start(self) -> int:
        """The first second, in Unix seconds."""
        return _second_of(self.first)

    @property
    def end(self) -> int:
        """The first second after it."""
        return _second_of(self.last + timedelta(days=1))

    def width(self, now: float) -> Width:
        """Return the width of its periods: hours for a short range that hours are still kept of."""
        is_short = (self.last - self.first).days < _HOURLY_DAYS
        return "1h" if is_short and self.start > now - (KEPT_S["1h"] or 0) else "1d"


async def show_usage(visit: Visit) -> Response:
    """Show the usage of the chosen days and group; `format=csv` sends it by period as a file."""
    chosen, group = _range_of(visit), _group_of(visit)
    measure = visit.query("measure") if visit.query("measure") in MEASURES else "calls"
    where = UsageFilter(accounts=accounts_of(visit))
    width = chosen.width(time.time())
    if visit.query("format") == "csv":
        return await _export(visit, chosen, width, group, where)
    sums = await visit.services.usage.totals(
        width, chosen.start, chosen.end, group_by=("model", GROUPS[group]), where=where
    )
    figures, rows = add_up(sums), _rows(sums, GROUPS[group])
    names = await _names(visit, group, [value for value, _ in rows])
    periods = await visit.services.usage.buckets(
        width, chosen.start, chosen.end, group_by=(GROUPS[group],), where=replace(where, has_run=True)
    )
    largest = [one for one, figure in rows if figure.calls.num_requests][:_MAX_SERIES]
    times = range(chosen.start, min(chosen.end, int(time.time()) + 1), WIDTH_S[width])
    return visit.page(
        "usage.html",
        chosen=chosen,
        group=group,
        groups=[one for one in GROUPS if one != "account" or visit.principal.is_admin],
        measure=measure,
        measures=MEASURES,
        account=visit.query("account").strip(),
        figures=figures,
        has_prices=has_prices(visit, figures),
        rows=[(names.get(value, value), _place_of(group, value), one) for value, one in rows],
        chart=_chart(periods, times, GROUPS[group], largest, names, measure),
        kept=visit.request.url.include_query_params(format="csv").query,
    )


def _range_of(visit: Visit) -> Range:
    """Return the chosen days, by default the last 30.

    Raises:
        BadRequest: a date is not valid, or they are too far apart.
    """
    today = datetime.now(UTC).date()
    try:
        last = min(date.fromisoformat(visit.query("to")), today) if visit.query("to") else today
        earliest = last - timedelta(days=_DEFAULT_DAYS - 1)
        first = date.fromisoformat(visit.query("from")) if visit.query("from") else earliest
        chosen = Range(first, last)
        is_valid = 0 <= (last - first).days < _MAX_DAYS and chosen.start >= 0
    except (ValueError, OverflowError):
        raise BadRequest("A date is not valid. Write it like 2026-01-31.") from None
    if not is_valid:
        raise BadRequest(f"Choose a first day that is not after the last one, and at most {_MAX_DAYS} days.")
    return chosen


def _second_of(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _group_of(visit: Visit) -> str:
    asked = visit.query("group")
    return asked if asked in GROUPS and (asked != "account" or visit.principal.is_admin) else "model"


def _rows(sums: Sequence[UsageSum], group: Group) -> list[tuple[str, Figures]]:
    """Return the figures of each group, the one with the most model calls first; requests without a model are last."""
    parts: dict[str, list[UsageSum]] = {}
    for one in sums:
        parts.setdefault(getattr(one, group) or "", []).append(one)
    rows = [(value, add_up(found)) for value, found in parts.items()]
    return sorted(rows, key=lambda row: (-row[1].calls.num_requests, -row[1].other.num_requests, row[0]))


async def _names(visit: Visit, group: str, values: Sequence[str]) -> dict[str, str]:
    """Return the names of the groups that have one beside their id."""
    if group == "key":
        found = await visit.services.keys.find_all(values)
        return {key_id: f"{key.name} ({key.display})" for key_id, key in found.items()}
    return {_NO_MODEL: "no model"} if group == "model" else {}


def _place_of(group: str, value: str) -> str:
    """Return the page that shows more of a group, "" if there is none."""
    if group == "account":
        return f"/console/operator/accounts/{quote(value, safe='')}" if value else ""
    return f"/console/requests?{GROUPS[group]}={quote(value, safe='')}" if value else ""


def _chart(
    periods: Sequence[UsageSum], times: range, group: Group, largest: Sequence[str], names: Mapping[str, str], by: str
) -> str:
    """Return the bars of a measure: the `largest` groups, and all others together."""
    values: dict[tuple[str, int], float] = {}
    for one in periods:
        value = getattr(one, group) or ""
        place = (value if value in largest else "", one.start)
        values[place] = values.get(place, 0) + _measure(one, by)
    labels = {value: names.get(value, value) for value in largest}
    if any(value not in largest for value, _ in values):
        labels[""] = "others"
    series = [Series(label, [values.get((value, at), 0) for at in times]) for value, label in labels.items()]
    return chart(times, series)


def _measure(one: UsageSum, by: str) -> float:
    if by == "cost":
        return cost_of(one)
    return one.num_requests if by == "calls" else one.prompt_tokens + one.completion_tokens


_COUNTS = ("num_errors", "prompt_tokens", "cached_tokens", "completion_tokens")


async def _export(visit: Visit, chosen: Range, width: Width, group: str, where: UsageFilter) -> Response:
    """Return a line for each period and group that has requests; other requests have a column of their own."""
    column = GROUPS[group]
    calls, other = [
        {
            (one.start, getattr(one, column) or ""): one
            for one in await visit.services.usage.buckets(
                width, chosen.start, chosen.end, group_by=(column,), where=replace(where, **kind)
            )
        }
        for kind in ({"has_run": True}, {"models": (_NO_MODEL,)})
    ]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["start_time", column, "model_calls", *_COUNTS, "other_requests", "cost"])
    for place in sorted({*calls, *other}):
        one, beside = calls.get(place, UsageSum(0)), other.get(place, UsageSum(0))
        counts = [getattr(one, name) for name in _COUNTS]
        writer.writerow(
            [
                show_machine_time(place[0]),
                place[1],
                one.num_requests,
                *counts,
                beside.num_requests,
                f"{(Decimal(one.cost) / COST_PER_UNIT):f}",
            ]
        )
    headers = {**HEADERS, "content-disposition": f'attachment; filename="usage-{chosen.first}-{chosen.last}.csv"'}
    return Response(text.getvalue(), headers=headers, media_type="text/csv")
