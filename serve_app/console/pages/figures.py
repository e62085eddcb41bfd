"""Figures of usage that several pages show: whose they are, model calls apart from other requests, charts, costs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from deployments.models.price import COST_PER_UNIT
from deployments.state.database.tables.usage import COUNTS
from deployments.state.usage.reading import UsageSum
from serve_app.console.pages.models import visible_cards
from serve_app.console.visit import Visit


def accounts_of(visit: Visit) -> tuple[str, ...] | None:
    """Return the accounts of a page: the session's own; for operators the chosen account, or None for all."""
    if not visit.principal.is_admin:
        return (visit.account,)
    asked = visit.query("account").strip()
    return (asked,) if asked else None


class Figures(NamedTuple):
    """Sums of requests: model calls, and `other` requests (to files, lists, and those refused before a model ran)."""

    calls: UsageSum
    other: UsageSum

    @property
    def cost(self) -> float:
        """The cost in the currency of the service."""
        return cost_of(self.calls)


def cost_of(one: UsageSum) -> float:
    """Return the cost in the currency of the service."""
    return one.cost / COST_PER_UNIT


def add_up(sums: Sequence[UsageSum]) -> Figures:
    """Return sums by model as figures."""
    calls = [one for one in sums if one.model]
    other = [one for one in sums if not one.model]
    return Figures(_sum_of(calls), _sum_of(other))


def _sum_of(sums: Sequence[UsageSum]) -> UsageSum:
    return UsageSum(0)._replace(**{name: sum(getattr(one, name) for one in sums) for name in COUNTS})


def has_prices(visit: Visit, figures: Figures) -> bool:
    """Return whether costs mean something: a model of the key has a price, or something was charged."""
    return bool(figures.calls.cost) or any(visit.services.prices.of(card.id) for card in visible_cards(visit))


class Series(NamedTuple):
    """A series of a chart: its label, and its value in each period."""

    label: str
    values: list[Any]
    is_error: bool = False


def chart(times: Sequence[int], series: Sequence[Series], unit: str = "") -> str:
    """Return the data of a chart as JSON; `times` are the starts of its periods in Unix seconds."""
    drawn = [one._asdict() for one in series]
    return orjson.dumps({"times": list(times), "series": drawn, "unit": unit}).decode()
