"""The service's times, and what is longer where it is more patient."""

from dataclasses import asdict

from deployments.limits.client.gatekeeper_client import TICK_S
from deployments.patience import USUAL, waits


def test_what_is_fixed_stays_and_all_else_is_longer() -> None:
    longer = asdict(USUAL.times(20))
    for name, usual in asdict(USUAL).items():
        assert longer[name] == (usual if waits()[name].fixed else 20 * usual), name
    assert longer["trust_s"] < 1  # However patient a replica is, a revoked key is refused within a second.
    assert USUAL.times(1) == USUAL


def test_a_gatekeeper_that_is_back_waits_for_as_long_as_a_client_may_take_to_learn_of_it() -> None:
    for factor in (1, 20):
        patience = USUAL.times(factor)
        assert patience.recovery_s > patience.sync_s + TICK_S
