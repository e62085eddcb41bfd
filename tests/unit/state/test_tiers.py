"""Tiers as a configuration gives them: those that are there by default, changed and added to."""

from typing import Any

import pytest
from pydantic import ValidationError

from deployments.state.config import StateConfig
from deployments.state.identity.tiers import TierLimits, Tiers
from serve_app.config import ServiceConfig

MODEL = {"id": "m", "source": "demo:chat", "max_model_len": 8}


def service(**parts: Any) -> ServiceConfig:
    return ServiceConfig.model_validate({"models": [MODEL], **parts})


LIMITS = ("requests_per_minute", "tokens_per_minute", "enqueued_tokens")

FREE = {"calls_per_minute": 600, "file_bytes": 2**30, "item_bytes": 2**28, "stored_objects": 10_000, "keys": 1}


def limits(*values: int | None, **more: Any) -> TierLimits:
    return TierLimits(**dict(zip(LIMITS, values, strict=True)), **more)


def test_three_tiers_are_there_by_default():
    tiers = StateConfig().tiers
    assert tiers == Tiers() == Tiers.model_validate({})
    assert tiers.names == ("free", "standard", "enterprise")
    assert tiers.of("free") == limits(10, 40_000, 5_000_000, **FREE)
    assert tiers.of("standard") == limits(60, 200_000, 100_000_000)
    assert tiers.of("enterprise") == limits(None, None, None, **dict.fromkeys(FREE))


def test_a_configuration_changes_some_and_adds_others():
    research = {"requests_per_minute": 7, "tokens_per_minute": None, "enqueued_tokens": 8}
    tiers = StateConfig.model_validate({"tiers": {"research": research, "free": {"enqueued_tokens": None}}}).tiers
    assert tiers.names == ("free", "standard", "enterprise", "research")
    assert tiers.of("research") == limits(7, None, 8)
    assert tiers.of("free") == limits(10, 40_000, None, **FREE)
    assert tiers.of("standard") == Tiers().of("standard")
    assert Tiers().names == ("free", "standard", "enterprise")


def test_a_tier_that_left_the_configuration_has_the_least():
    assert Tiers().of("research") == limits(1, 1, 1, **{**FREE, "calls_per_minute": 60})


def test_tiers_survive_being_written_and_read():
    tiers = Tiers.model_validate({"research": {**limits(1, 2, 3).model_dump()}})
    assert Tiers.model_validate_json(tiers.model_dump_json()) == tiers


def test_files_of_before_keep_their_meaning():
    old = service(
        state={"tiers": {"free": {"requests_per_minute": 5, "tokens_per_minute": 500}}},
        batches={"enqueued_tokens": {"free": 50, "standard": None}, "num_workers": 2},
    )
    tiers = old.state.tiers
    assert tiers.of("free") == limits(5, 500, 50, **FREE)
    assert tiers.of("standard") == limits(60, 200_000, None)
    assert tiers.of("enterprise") == limits(None, None, None, **dict.fromkeys(FREE))
    assert old.batches.num_workers == 2
    assert service(batches={"enqueued_tokens": {}}).state.tiers == Tiers()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"batches": {"enqueued_tokens": {"gold": 1}}}, "enqueued_tokens.gold: there is no such tier in state.tiers"),
        (
            {"batches": {"enqueued_tokens": {"free": 1}}, "state": {"tiers": {"free": {"enqueued_tokens": 1}}}},
            "enqueued_tokens.free: is now called state.tiers.free.enqueued_tokens, which is set too",
        ),
        ({"batches": {"enqueued_tokens": {"free": 0}}}, "state.tiers.free.enqueued_tokens"),
        ({"batches": {"enqueued_tokens": 5}}, "batches.enqueued_tokens"),
        ({"batches": {"enqueued_tokens": {"free": 1}}, "state": "x"}, "state"),
        ({"batches": {"enqueued_tokens": {"free": 1}}, "state": {"tiers": {"free": 5}}}, "state.tiers.free"),
    ],
)
def test_what_has_two_meanings_or_none_is_refused(parts: dict[str, Any], message: str):
    with pytest.raises(ValidationError) as refused:
        service(**parts)
    assert message in str(refused.value)


def test_a_file_of_before_is_not_changed_by_being_read():
    given = {"models": [MODEL], "batches": {"enqueued_tokens": {"free": 1}}, "state": {"tiers": {"free": {}}}}
    ServiceConfig.model_validate(given)
    assert given["batches"] == {"enqueued_tokens": {"free": 1}}
    assert given["state"] == {"tiers": {"free": {}}}
