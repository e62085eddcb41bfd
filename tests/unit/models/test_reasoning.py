"""The budget of reasoning at each effort."""

from typing import get_args

import pytest
from pydantic import ValidationError

from deployments.models.config import ModelConfig
from deployments.models.reasoning import Effort, reasoning_budgets

EFFORTS = get_args(Effort)


def model(context: int, **fields) -> ModelConfig:
    return ModelConfig(id="m", source="s", max_model_len=context, **fields)


@pytest.mark.parametrize("context", [1, 64, 4096, 131_072, 1_010_000])
def test_more_effort_is_never_less_reasoning_and_leaves_room_for_the_answer(context: int) -> None:
    budgets = reasoning_budgets(context, {})
    assert tuple(budgets) == EFFORTS
    assert list(budgets.values()) == sorted(budgets.values())
    assert budgets["none"] == 0
    assert budgets["max"] <= context * 3 / 4


def test_a_large_context_does_not_make_a_low_effort_a_long_one() -> None:
    budgets = reasoning_budgets(1_000_000, {})
    assert [budgets[effort] for effort in ("minimal", "low", "medium", "high")] == [1024, 4096, 16_384, 65_536]
    assert reasoning_budgets(4096, {})["low"] == 512


def test_the_operators_budgets_come_first_and_null_takes_one_away() -> None:
    own = model(4096, reasoning_budgets={"low": 7, "max": None}).budgets
    assert own == {**{effort: n for effort, n in model(4096).budgets.items() if effort != "max"}, "low": 7}


@pytest.mark.parametrize("wrong", [{"lots": 1}, {"low": -1}, {"low": "many"}])
def test_a_wrong_budget_is_refused(wrong) -> None:
    with pytest.raises(ValidationError, match="reasoning_budgets"):
        model(4096, reasoning_budgets=wrong)
