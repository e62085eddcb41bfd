"""The coordinator as ingress replicas are made with it."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray import cloudpickle

from deployments.state.config import StateConfig, resolve_state
from serve_app import coordinator
from serve_app.config import ServiceConfig


async def test_it_can_be_pickled_after_it_was_started_and_woken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Serve does so when a controller has restarted, and replaces the replica where it fails."""
    monkeypatch.setattr(coordinator, "start_coordinator", lambda setup: None)
    monkeypatch.setattr("batch.actor.ray.get_actor", _no_actor)
    state = resolve_state(StateConfig(state_dir=tmp_path), {})
    one = coordinator.ClusterCoordinator(
        ServiceConfig.model_validate({"models": [{"id": "m", "source": "demo:chat", "max_model_len": 64}]}), state
    )
    wake = one.start({"m": SimpleNamespace(deployment_name="model:m", app_name="manta")}, {})
    wake()
    assert cloudpickle.loads(cloudpickle.dumps(one)) is not None
    await asyncio.sleep(0.05)


def _no_actor(*_: object) -> None:
    raise ValueError
