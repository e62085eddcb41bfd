"""Figures of usage that several pages show: whose they are, model calls apart from other requests, charts, costs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from deployments.models.price import COST_PER_UNIT
from deployments.state.batches.rows import Batch
from deployments.state.database.tables.usage import COUNTS
from deployments.state.usage.reading import UsageSum
from deployments.state.usage.request_log import RequestFilter
from serve_app.console.pages.models import visible_cards
from serve_app.console.visit import Visit

_SKEW_S = 3600
"""How far the clocks of a batch and of its requests may be apart."""


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


async def cost_of_batch(visit: Visit, batch: Batch) -> dict[str, Any]:
    """Return the `cost` of a batch's requests, and whether it `has_price`.

    It is that of the request log, as charged; None while no request of the batch is in the log, and when all have
    become too old for it.
    """
    begin, end = batch.state.created_at - _SKEW_S, batch.state.finalizing_at
    until = None if end is None else end + _SKEW_S
    where = RequestFilter(account=batch.account, batch_id=batch.batch_id, since=begin, until=until)
    costs = await visit.services.request_log.costs(where)
    total, models = sum(costs.values()), [model for model in costs if model]
    has_price = bool(total) or any(visit.services.prices.of(model) for model in models)
    return {"cost": total / COST_PER_UNIT if models else None, "has_price": has_price}


class Series(NamedTuple):
    """A series of a chart: its label, and its value in each period."""

    label: str
    values: list[Any]
    is_error: bool = False


def chart(times: Sequence[int], series: Sequence[Series], unit: str = "") -> str:
    """Return the data of a chart as JSON; `times` are the starts of its periods in Unix seconds."""
    drawn = [one._asdict() for one in series]
    return orjson.dumps({"times": list(times), "series": drawn, "unit": unit}).decode()
