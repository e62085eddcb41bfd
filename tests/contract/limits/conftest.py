"""What the tests of limits have in common."""

import pytest


@pytest.fixture(autouse=True)
def _patient_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a gatekeeper wait longer for its database: on a busy machine a look can take over a second."""
    monkeypatch.setattr("deployments.limits.gatekeeper._LOOK_TIMEOUT_S", 10.0)
