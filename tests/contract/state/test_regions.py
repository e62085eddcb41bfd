"""The register of regions, and the replicas of each."""

import pytest

from deployments.state.database.connection import Database
from deployments.state.ingresses.register import IngressRegister
from deployments.state.regions.register import LIVING_S, Region, RegionRegister, RegionUnknown
from tests.contract.state.test_ingresses import Clock


async def test_regions_sign_in_and_are_told_from_those_that_have_gone(database: Database) -> None:
    clock = Clock()
    register = RegionRegister(database, clock)
    await register.sign_in("us", {"replicas": 2})
    await register.sign_in("asia", {})
    assert await register.all_regions() == [
        Region("asia", 1000.0, None, {}),
        Region("us", 1000.0, None, {"replicas": 2}),
    ]
    clock.now += LIVING_S
    await register.sign_in("us", {"replicas": 3})
    clock.now += 1
    asia, us = await register.all_regions()
    assert (asia.is_living(clock()), us.is_living(clock())) == (False, True)
    assert us.facts == {"replicas": 3}
    await register.forget("asia")
    assert [region.name for region in await register.all_regions()] == ["us"]


async def test_drained_region_stays_so_over_its_heartbeats_until_it_is_undrained(database: Database) -> None:
    clock = Clock()
    register = RegionRegister(database, clock)
    await register.sign_in("us", {})
    assert not await register.is_drained("us")
    await register.drain("us")
    clock.now += 5
    await register.drain("us")
    await register.sign_in("us", {"health": "ok"})
    (us,) = await register.all_regions()
    assert us == Region("us", 1005.0, 1000.0, {"health": "ok"})
    assert await register.is_drained("us")
    await register.undrain("us")
    assert not await register.is_drained("us")
    assert not await register.is_drained("mars")
    for change in (register.drain, register.undrain, register.forget):
        with pytest.raises(RegionUnknown):
            await change("mars")


async def test_each_region_has_replicas_of_its_own_also_at_the_same_address(database: Database) -> None:
    clock = Clock()
    us, asia = (IngressRegister(database, clock, name) for name in ("us", "asia"))
    for register in (us, asia):
        await register.sign_in("10.0.0.1:30000")
    await asia.sign_in("10.0.0.2:30000")
    assert await us.living() == ["10.0.0.1:30000"]
    assert await IngressRegister(database, clock).living() == []
    await asia.sign_out("10.0.0.1:30000")
    assert await us.living() == ["10.0.0.1:30000"]
    assert await asia.living() == ["10.0.0.2:30000"]
