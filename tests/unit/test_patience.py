"""The service's times, and what is longer where it is more patient."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deployments.limits.client.gatekeeper_client import TICK_S
from deployments.patience import USUAL, waits
from serve_app.app import build
from serve_app.config import ServiceConfig


def test_what_is_fixed_stays_and_all_else_is_longer() -> None:
    longer = asdict(USUAL.times(20))
    for name, usual in asdict(USUAL).items():
        assert longer[name] == (usual if waits()[name].fixed else 20 * usual), name
    assert longer["trust_s"] < 1  # However patient a replica is, a revoked key is refused within a second.
    assert USUAL.times(1) == USUAL


def test_a_gatekeeper_that_is_back_waits_for_as_long_as_a_client_may_take_to_learn_of_it() -> None:
    for factor in (1, 20):
        patience = USUAL.times(factor)
        assert patience.recovery_s > patience.sync_s + TICK_S


def config(tmp_path: Path, **settings: Any) -> ServiceConfig:
    models = [{"id": "m", "source": "demo:chat", "max_model_len": 64}]
    return ServiceConfig.model_validate({"models": models, "state": {"state_dir": tmp_path}, **settings})


@pytest.mark.parametrize(("settings", "factor"), [({}, 1), ({"patience": 20}, 20)])
def test_the_setting_reaches_the_ingress_and_the_models(
    tmp_path: Path, settings: dict[str, float], factor: float
) -> None:
    ingress = build(config(tmp_path, **settings))._bound_deployment
    _, state, models, *_ = ingress.init_args
    assert state.patience == USUAL.times(factor)
    assert models["m"]._bound_deployment.init_args[-1] == USUAL.times(factor)


def test_nobody_can_be_less_patient_than_usual(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="patience"):
        config(tmp_path, patience=0.5)
