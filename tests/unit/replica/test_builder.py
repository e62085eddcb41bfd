"""The Serve deployments of a model: the one for requests, and the one that it may have for batches."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from deployments.models.config import BatchReplicas
from deployments.replica.server import STOP_S, build_batch_deployment, build_model_deployment
from deployments.state.config import resolve_state
from serve_app.app import build
from serve_app.config import ServiceConfig
from serve_app.coordinator import batch_setup

MODEL = {
    "id": "demo/chat.v1",
    "source": "demo:chat",
    "device": "cpu",
    "max_model_len": 4096,
    "autoscaling_config": {"min_replicas": 2, "max_replicas": 3, "initial_replicas": 3, "target_ongoing_requests": 7},
}
OTHER = {**MODEL, "id": "demo/other"}


def configured(**fields: Any) -> ServiceConfig:
    return ServiceConfig.model_validate({"models": [{**MODEL, **fields}, OTHER]})


def test_replicas_for_batches_are_the_model_s_but_for_their_number() -> None:
    model = configured(batch_replicas={"min_replicas": 0, "max_replicas": 5}).models[0]
    assert model.batch_replicas is not None
    online = build_model_deployment(model)._bound_deployment
    own = build_batch_deployment(model, model.batch_replicas)._bound_deployment
    assert (online.name, own.name) == ("model:demo--chat_v1", "batch:demo--chat_v1")
    scaling = own._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas, scaling.initial_replicas) == (0, 5, None)
    assert scaling.target_ongoing_requests == 7
    assert online._deployment_config.autoscaling_config.max_replicas == 3
    assert own.ray_actor_options == online.ray_actor_options
    assert own.init_args[0].id == model.id
    assert own.init_args[0].card == model.card


def test_lines_run_on_replicas_for_batches_where_a_model_has_some(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MANTA_STATE_DIR", str(tmp_path))
    config = configured(batch_replicas={"max_replicas": 1})
    handles: Any = {
        model.id: SimpleNamespace(deployment_name=f"online {model.id}", app_name="manta") for model in config.models
    }
    own: Any = {"demo/chat.v1": SimpleNamespace(deployment_name="for batches", app_name="manta")}
    setup = batch_setup(config, resolve_state(config.state), {**handles, **own}, {})
    assert [place.deployment for place in setup.models] == ["for batches", "online demo/other"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, "batch_replicas"),
        ({"max_replicas": 0}, "max_replicas"),
        ({"min_replicas": 1}, "max_replicas"),
        ({"max_replicas": 1, "max_replica": 2}, "max_replica"),
        (2, "batch_replicas"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_their_name(given: Any, field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        configured(batch_replicas=given)
    (fault,) = refused.value.errors()
    assert fault["loc"][:3] == ("models", 0, "batch_replicas")
    assert fault["loc"][-1] == field


@pytest.mark.parametrize("given", [{"backend": "auto"}, {"backend": "guidance"}, "auto"])
def test_no_grammar_compiler_but_that_by_which_schemas_are_tried(given: Any) -> None:
    with pytest.raises(ValidationError, match="must be xgrammar"):
        configured(engine_kwargs={"structured_outputs_config": given})
    configured(engine_kwargs={"structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": False}})


@pytest.mark.parametrize(
    ("given", "percent"),
    [
        ({}, 100),
        ({"device": "gpu"}, 0),
        ({"device": "gpu", "max_surge_percent": 100}, 100),
        ({"max_surge_percent": 0}, 0),
    ],
)
def test_new_replicas_start_before_old_ones_go_but_on_gpus_unless_told_otherwise(
    given: dict[str, Any], percent: int, tmp_path: Path
) -> None:
    state = {"state_dir": tmp_path}
    ingress = build(ServiceConfig.model_validate({"models": [{**MODEL, **given}], "state": state}))._bound_deployment
    model = ingress.init_args[2][MODEL["id"]]._bound_deployment
    assert (ingress._deployment_config.max_surge_percent, model._deployment_config.max_surge_percent) == (100, percent)


def test_replicas_that_go_have_the_time_to_drain_that_is_configured(tmp_path: Path) -> None:
    settings = {"models": [{**MODEL, "drain_s": 300}], "ingress": {"drain_s": 240}, "state": {"state_dir": tmp_path}}
    ingress = build(ServiceConfig.model_validate(settings))._bound_deployment
    model = ingress.init_args[2][MODEL["id"]]._bound_deployment
    assert ingress._deployment_config.graceful_shutdown_timeout_s == 240
    assert model._deployment_config.graceful_shutdown_timeout_s == 300 + STOP_S


def test_batches_share_the_replicas_of_requests_unless_told_otherwise() -> None:
    assert configured().models[0].batch_replicas is None
    assert BatchReplicas(max_replicas=2).min_replicas == 0
