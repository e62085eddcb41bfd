"""How an ingress replica ends, whether or not its constructor came to its end."""

from types import SimpleNamespace
from typing import Any

import pytest

from serve_app import ingress
from serve_app.ingress import Ingress


async def test_replica_whose_constructor_failed_ends_without_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(state: object) -> None:
        raise ConnectionError("no gatekeeper")

    monkeypatch.setattr(ingress, "start_gatekeeper", fail)
    for name in ("keep_handlers_open", "end_timers_of_lost_connections"):
        monkeypatch.setattr(ingress, name, lambda: None)
    replica: Any = SimpleNamespace()  # Of a real one, Python would call `__del__` once more.
    with pytest.raises(ConnectionError, match="no gatekeeper"):
        await Ingress.__init__(replica, *[None] * 6)  # type: ignore[arg-type, misc]
    await Ingress.__del__(replica)
    assert vars(replica) == {}


async def test_replica_hands_over_its_work_when_it_ends() -> None:
    closed = []

    async def close() -> None:
        closed.append("closed")

    replica: Any = SimpleNamespace(_wired=SimpleNamespace(closing=SimpleNamespace(aclose=close)))
    await Ingress.__del__(replica)
    assert closed == ["closed"]
