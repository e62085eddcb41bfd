"""The view of the cluster says which tools are off, and why."""

from typing import Any

import pytest

from serve_app.telemetry.cluster import ServeView


async def test_tools_are_on_off_or_away(monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, Any] = {"deployments": [], "nodes": [], "engines": []}
    monkeypatch.setattr(ServeView, "_read", lambda self: read)

    async def works() -> None:
        return None

    async def lacks() -> str:
        return "bubblewrap is not installed"

    async def fails() -> str | None:
        raise OSError

    seen = await ServeView({"a": works, "b": lacks, "c": fails}).look()
    assert seen["tools"] == [
        {"name": "a", "state": "on", "reason": None},
        {"name": "b", "state": "off", "reason": "bubblewrap is not installed"},
        {"name": "c", "state": "away", "reason": None},
    ]
    assert (await ServeView().look())["tools"] == []
