"""Prices of tokens, and the cost of requests in whole numbers: nothing is rounded, so costs add up exactly."""

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from deployments.config import Section

_PER_PERCENT = 100
COST_PER_UNIT = 10**12
"""Costs are in 10^-12 of the currency."""


def show_money(amount: float) -> str:
    """Return an amount of money: two decimals, and more for a small one, so that it is not shown as zero."""
    if not amount:
        return "0"
    num_decimals = max(4, 5 - math.floor(math.log10(abs(amount))))  # At least six significant digits.
    whole, _, part = f"{amount:,.{num_decimals}f}".partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}"


def _check_decimals(price: float) -> float:
    if abs(price * 10_000 - round(price * 10_000)) > 1e-6:
        raise ValueError("at most four decimals")
    return price


_Price = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False), AfterValidator(_check_decimals)]
_Percent = Annotated[int, Field(ge=0, le=100)]


class PriceConfig(Section):
    """The price of a model, for a million tokens.

    Args:
        input: of prompts.
        cached_input: of the tokens of prompts that were in the prefix cache; by default `input`.
        output: of generated tokens.
        flex_percent: how much of it a request with `service_tier: flex` costs, in percent.
        batch_percent: how much of it a line of a batch costs, in percent.
    """

    input: _Price = 0.0
    cached_input: _Price | None = None
    output: _Price = 0.0
    flex_percent: _Percent = 50
    batch_percent: _Percent = 50


class Costs(NamedTuple):
    """The cost of one request, in 10^-12 of the currency."""

    input: int = 0
    cached: int = 0
    output: int = 0


NO_COSTS = Costs()


class Prices:
    """The prices of all models, by their ids. An adapter costs what its model does."""

    def __init__(self, prices: Mapping[str, PriceConfig | None]) -> None:
        self._prices = {model: price for model, price in prices.items() if price is not None}

    def of(self, model: str | None) -> PriceConfig | None:
        """Return the price of a model or of an adapter's model; None where there is none."""
        return self._prices.get((model or "").partition(":")[0])

    def costs(
        self,
        model: str | None,
        *,
        prompt_tokens: int,
        cached_tokens: int,
        completion_tokens: int,
        is_flex: bool = False,
        is_batch: bool = False,
    ) -> Costs:
        """Return the cost of a request; 0 for a model without a price. `prompt_tokens` include `cached_tokens`."""
        price = self.of(model)
        if price is None:
            return NO_COSTS
        percent = price.batch_percent if is_batch else price.flex_percent if is_flex else _PER_PERCENT
        cached = price.input if price.cached_input is None else price.cached_input
        return Costs(
            (prompt_tokens - cached_tokens) * _per_token(price.input, percent),
            cached_tokens * _per_token(cached, percent),
            completion_tokens * _per_token(price.output, percent),
        )


NO_PRICES = Prices({})


def _per_token(price: float, percent: int) -> int:
    """Return a percentage of a price for a million tokens as the cost of one token, in 10^-12 of the currency.

    The price times 10^6 is a whole number, also for each percent, since a price has at most four decimals.
    """
    return round(price * 10_000) * percent
