"""What an effort means to an engine."""

from types import SimpleNamespace
from typing import get_args

import pytest

from deployments.models.reasoning import Effort
from deployments.replica.efforts import Efforts

BUDGETS = {"none": 0, "low": 7}


def efforts(kind: str = "qwen3", enabled: bool | None = True) -> Efforts:
    keeps = None if enabled is None else SimpleNamespace(enabled=enabled)
    model = SimpleNamespace(hf_config=SimpleNamespace(model_type=kind))
    return Efforts(SimpleNamespace(model_config=model, reasoning_config=keeps), BUDGETS)


@pytest.mark.parametrize(("effort", "tokens"), [("none", 0), ("low", 7), ("high", None), (None, None)])
def test_an_effort_is_a_bound(effort: str | None, tokens: int | None) -> None:
    assert efforts().budget_of(SimpleNamespace(reasoning_effort=effort)) == tokens


@pytest.mark.parametrize("enabled", [False, None])
def test_an_engine_that_cannot_end_reasoning_gets_no_bound(enabled: bool | None) -> None:
    assert efforts(enabled=enabled).budget_of(SimpleNamespace(reasoning_effort="low")) is None


def test_gpt_oss_gets_the_nearest_effort_that_it_has_and_others_what_was_sent() -> None:
    for effort in get_args(Effort):
        fields = {"reasoning_effort": effort}
        efforts().name(fields)
        assert fields == {"reasoning_effort": effort}
        efforts("gpt_oss").name(fields)
        assert fields["reasoning_effort"] in ("low", "medium", "high")
        assert effort not in ("low", "medium", "high") or fields["reasoning_effort"] == effort
    fields = {}
    efforts("gpt_oss").name(fields)
    assert fields == {}
