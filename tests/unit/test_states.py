"""The recorder of states: what comes and goes between two looks of a test is kept."""

from typing import Any

import pytest

from tests.states import GONE, States


def deployment(**states: str) -> dict[str, Any]:
    return {"replicas": [{"replica_id": name, "state": state} for name, state in states.items()]}


def test_every_change_of_every_replica_is_kept() -> None:
    looks = iter(
        [
            {"model": deployment(one="STARTING"), "ingress": deployment(two="RUNNING")},
            {"model": deployment(one="RUNNING"), "ingress": None},
            {},  # While a configuration is built, Serve names nothing.
            {"model": deployment(three="RUNNING"), "ingress": deployment(two="RUNNING")},
        ]
    )
    states = States(lambda: next(looks))
    states.start()
    while "three" not in states.seen("model", "RUNNING"):
        states.now()
    states.stop()
    seen = [(change.deployment, change.replica_id, change.state) for change in states.changes]
    assert seen[:2] == [("model", "one", "STARTING"), ("ingress", "two", "RUNNING")]
    assert sorted(seen[2:]) == [("model", "one", GONE), ("model", "one", "RUNNING"), ("model", "three", "RUNNING")]
    assert states.seen("model", "RUNNING") == {"one", "three"}
    assert states.seen("ingress", GONE) == set()


def test_a_look_that_fails_is_raised_to_who_waits_for_it_and_the_next_is_taken() -> None:
    is_away = True

    def look() -> dict[str, Any]:
        if is_away:
            raise KeyError("manta")
        return {"model": deployment()}

    states = States(look)
    states.start()
    with pytest.raises(KeyError):
        states.now()
    is_away = False
    assert states.now() == {"model": deployment()}
    states.stop()
