"""How a model replica ends: what runs ends in peace, unless its engine is sick."""

from types import SimpleNamespace
from typing import Any

import pytest

from deployments.models.contract.errors import EngineDied
from deployments.replica.server import ModelReplica


class Engine:
    def __init__(self) -> None:
        self.is_well = True

    async def check_health(self) -> None:
        if not self.is_well:
            raise EngineDied("It makes no progress.")

    async def stop(self) -> None:
        pass


class Channel:
    def __init__(self) -> None:
        self.calls: list[str] = []

    async def drain(self, timeout_s: float) -> None:
        self.calls.append(f"drain {timeout_s:g}")

    async def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def replica() -> Any:
    return SimpleNamespace(_engine=Engine(), _channel=Channel(), _drain_s=60.0, _is_sick=False)


async def test_replica_lets_what_runs_end(replica: Any) -> None:
    await ModelReplica.check_health(replica)
    await ModelReplica.__del__(replica)
    assert replica._channel.calls == ["drain 60", "close"]


async def test_replica_whose_engine_is_sick_gives_up_what_runs_at_once(replica: Any) -> None:
    replica._engine.is_well = False
    with pytest.raises(EngineDied):
        await ModelReplica.check_health(replica)
    await ModelReplica.__del__(replica)
    assert replica._channel.calls == ["close"]


async def test_engine_may_recover(replica: Any) -> None:
    replica._engine.is_well = False
    with pytest.raises(EngineDied):
        await ModelReplica.check_health(replica)
    replica._engine.is_well = True
    await ModelReplica.check_health(replica)
    await ModelReplica.__del__(replica)
    assert replica._channel.calls == ["drain 60", "close"]
