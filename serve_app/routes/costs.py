"""Costs as OpenAI shows them: an amount for each group, or for each line item, such as the input tokens of a model."""

from collections.abc import Iterable
from typing import Any

from deployments.models.price import COST_PER_UNIT
from deployments.state.usage.reading import UsageSum
from serve_app.schemas.usage import CostQuery

Result = dict[str, Any]
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "input_cost", "cached_cost", "output_cost")
"""The counts that costs are computed from."""


def costs_of(sums: Iterable[UsageSum], query: CostQuery, currency: str) -> dict[int, list[Result]]:
    """Return the results by the start of their period, with amounts in the currency and without those of 0.

    For line items, the sums must be by model.
    """
    results: dict[int, list[Result]] = {}
    is_by_item = "line_item" in query.group_by
    wanted = query.line_items
    for one in sums:
        if is_by_item or wanted is not None:
            items = [item for item in _line_items(one) if wanted is None or item[0] in wanted]
        else:
            items = [(None, one.cost, None)]
        for name, cost, tokens in items:
            if not cost:
                continue
            shown = _result(one, query, currency, cost)
            if is_by_item:
                shown |= {"line_item": name, "quantity": tokens, "quantity_unit": "tokens"}
            results.setdefault(one.start, []).append(shown)
    return {start: _merged(found) for start, found in results.items()}


def _line_items(one: UsageSum) -> list[tuple[str | None, int, int | None]]:
    """Return name, cost and tokens of each line item."""
    return [
        (f"{one.model}, input_tokens", one.input_cost, one.prompt_tokens - one.cached_tokens),
        (f"{one.model}, cached_input_tokens", one.cached_cost, one.cached_tokens),
        (f"{one.model}, output_tokens", one.output_cost, one.completion_tokens),
    ]


def _result(one: UsageSum, query: CostQuery, currency: str, cost: int) -> Result:
    return {
        "object": "organization.costs.result",
        "amount": {"value": cost, "currency": currency},
        "line_item": None,
        "project_id": one.account,
        "user_id": None,
        "api_key_id": one.key_id,
        "api_source": "unlabeled" if "api_source" in query.group_by else None,
        "quantity": None,
        "quantity_unit": None,
    }


def _merged(found: Iterable[Result]) -> list[Result]:
    """Add up the results of each group; convert the amounts from whole units into the currency."""
    merged: dict[tuple[Any, ...], Result] = {}
    for one in found:
        key = (one["project_id"], one["api_key_id"], one["line_item"])
        if key in merged:
            merged[key]["amount"]["value"] += one["amount"]["value"]
        else:
            merged[key] = one
    for one in merged.values():
        one["amount"]["value"] /= COST_PER_UNIT
    return list(merged.values())
