"""Costs are whole numbers, whatever the share that is paid."""

from fractions import Fraction

import pytest
from pydantic import ValidationError

from deployments.models.price import COST_PER_UNIT, PriceConfig, Prices

TOKENS = {"prompt_tokens": 1_003, "cached_tokens": 3, "completion_tokens": 7}


@pytest.mark.parametrize(("more", "share"), [({}, 1), ({"is_flex": True}, Fraction(3, 10)), ({"is_batch": True}, 0)])
def test_a_cost_is_tokens_times_price_and_nothing_is_rounded(more: dict[str, bool], share: Fraction) -> None:
    prices = Prices({"m": PriceConfig(input=0.15, cached_input=0.0751, output=3, flex_percent=30, batch_percent=0)})
    costs = prices.costs("m", **TOKENS, **more)
    paid = [Fraction(1_000) * Fraction("0.15"), 3 * Fraction("0.0751"), 7 * Fraction(3)]
    assert list(costs) == [one / 10**6 * share * COST_PER_UNIT for one in paid]


def test_an_adapter_costs_what_its_model_does_and_others_nothing() -> None:
    prices = Prices({"m": PriceConfig(input=2.0), "free": None})
    assert prices.costs("m:legal", **TOKENS) == prices.costs("m", **TOKENS) == (2_000 * 10**6, 6 * 10**6, 0)
    assert prices.costs("free", **TOKENS) == prices.costs(None, **TOKENS) == (0, 0, 0)


@pytest.mark.parametrize("price", [-1, 0.00001, float("nan"), 1e7])
def test_other_prices_are_refused(price: float) -> None:
    with pytest.raises(ValidationError):
        PriceConfig(input=price)
