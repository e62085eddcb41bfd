"""A hub that cannot be reached is a reason in words, whichever library the client of the hub is built on."""

import pytest
from huggingface_hub import constants

from deployments.models.whereabouts import find_on_hub
from tests.ports import free_port


def test_a_hub_that_cannot_be_reached_is_a_reason_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    problem = find_on_hub("acme/model")
    assert problem is not None
    assert problem.startswith("acme/model is not in the cache, and the hub cannot be reached (ConnectError)")
    assert "hf download acme/model" in problem
