"""Shares of regions: they add up to the limit, and no minute over all regions holds more than it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.limits.contract import Granted
from deployments.limits.window import Share
from tests.unit.limits.memory import admit, principal_of, secret_of
from tests.unit.limits.regions import NAMES, Regions
from tests.unit.limits.test_limits_shared_by_clients import most_in_any_minute


@given(st.integers(0, 10**9), st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_the_shares_of_all_regions_add_up_to_the_limit(limit: int, names: set[str]) -> None:
    shares = [Share.of_region(name, names).of(limit) for name in sorted(names)]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def test_the_first_region_has_the_only_request() -> None:
    assert [Share.of_region(name, "ba").of(1) for name in "ab"] == [1, 0]


LIMIT = 7
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, 1), st.integers(1, 10)),
        st.tuples(st.just("advance"), st.integers(0, 1), st.integers(0, 40)),
        st.tuples(st.just("kill"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("heal"), st.integers(0, 1), st.just(0)),
    ),
    max_size=40,
)


def cut_regions() -> Regions:
    """Return two regions that never reach each other."""
    world = Regions(principal_of("key", LIMIT, 1_000))
    world.is_cut = True
    return world


async def play(steps) -> list[tuple[float, int]]:
    """Return when requests were admitted, in either region, each one counted."""
    world = cut_regions()
    clients = [world.regions[name].client() for name in NAMES]
    principal = principal_of("key", LIMIT, 1_000)
    for client in clients:
        await client.identify(secret_of("key"))
    admitted = []
    for step, number, amount in steps:
        region, client = world.regions[NAMES[number]], clients[number]
        if step == "admit":
            for _ in range(amount):
                if isinstance(await client.admit(principal), Granted):
                    admitted.append((world.now, 1))
        elif step == "advance":
            world.advance(amount)
            await client.tick()
        elif step == "kill":
            region.kill()
        else:
            region.is_down = step == "cut"
    return admitted


@given(STEPS)
def test_no_minute_over_both_regions_holds_more_than_the_limit(steps) -> None:
    assert most_in_any_minute(asyncio.run(play(steps))) <= LIMIT


@pytest.mark.parametrize(("number", "share"), [(0, 4), (1, 3)])
async def test_a_region_serves_its_share_whatever_the_other_does(number: int, share: int) -> None:
    world = cut_regions()
    region = world.regions[NAMES[number]]
    client = region.client()
    principal = await client.identify(secret_of("key"))
    assert (await admit(client, principal, 10)).count(True) == share
    quota = client.quota(principal)
    assert (quota.limit_requests, quota.remaining_requests) == (LIMIT, 0)
    refused = await client.reserve(principal, 501)
    assert (refused.limit, refused.requested) == (1_000, 501)
    assert isinstance(await client.reserve(principal, 500), Granted)
    world.advance(61)
    region.is_down = True
    assert (await admit(client, principal, 10)).count(True) == share
