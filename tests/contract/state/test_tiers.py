"""A tier that is only in the configuration file: checked, given to a key, and its limits kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.contract import Denied, Granted
from deployments.limits.gatekeeper import GatekeeperProcess
from deployments.state.config import resolve_state
from serve_app.checks.check import check_file
from serve_app.cli import main
from serve_app.config import ServiceConfig
from tests.contract.state.processes import DirectTransport

YAML = """
applications:
  - name: manta
    import_path: serve_app.app:build
    args:
      state:
        state_dir: {state_dir}
        tiers:
          research: {{requests_per_minute: 2, tokens_per_minute: 700, enqueued_tokens: 9}}
      models:
        - {{id: m, source: "demo:chat", max_model_len: 64}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(YAML.format(state_dir=tmp_path / "state"))
    return path


def manta(config: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--config", str(config)], env={"COLUMNS": "240"})


@pytest.fixture
def service(config: Path) -> ServiceConfig:
    assert check_file(config) == []
    return ServiceConfig.model_validate(yaml.safe_load(config.read_text())["applications"][0]["args"])


@pytest.fixture
def key(config: Path) -> dict[str, Any]:
    """A key of the new tier, as the operator made it."""
    made: dict[str, Any] = json.loads(manta(config, "keys", "create", "--tier", "research", "--json").stdout)
    return made


async def test_a_tier_is_added_by_yaml_alone(service: ServiceConfig, key: dict[str, Any]) -> None:
    assert (key["tier"], key["requests_per_minute"], key["tokens_per_minute"]) == ("research", 2, 700)
    state = resolve_state(service.state)
    gatekeeper = GatekeeperProcess(state)
    try:
        client = GatekeeperClient(DirectTransport(gatekeeper), state.pepper, background=False)
        principal = await client.identify(key["secret"])
        assert principal is not None
        assert (principal.tier, principal.requests_per_minute) == ("research", 2)
        assert [type(await client.admit(principal)) for _ in range(3)] == [Granted, Granted, Denied]
        assert isinstance(await client.reserve(principal, 701), Denied)
        assert isinstance(await client.reserve(principal, 700), Granted)
        await client.close()
    finally:
        gatekeeper.stop()
    assert service.state.tiers.of(principal.tier).enqueued_tokens == 9


def test_a_tier_that_the_file_does_not_have_is_refused_with_those_that_it_has(config: Path) -> None:
    refused = manta(config, "keys", "create", "--tier", "gold")
    assert refused.exit_code == 1
    assert "no tier 'gold'" in refused.stderr
    assert "Its tiers are: free, standard, enterprise, research." in refused.stderr
