"""The register of regions, and the replicas of each."""

import asyncio
import json
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError, OperationalError
from typer.testing import CliRunner

from deployments.limits.messages import TransportDown
from deployments.state import housekeeping
from deployments.state.audit_log import SERVICE, Actor, AuditFilter, AuditLog
from deployments.state.database.connection import Database, connect
from deployments.state.database.tables.service import leaders as leaders_table
from deployments.state.housekeeping import Chore, Housekeeping
from deployments.state.ingress_replicas import IngressRegister
from deployments.state.objects.copies import PendingCopies
from deployments.state.regions.register import (
    LEASE_S,
    LIVING_S,
    Leadership,
    Region,
    RegionRegister,
    RegionUnknown,
    leaders,
)
from serve_app.cli import main
from serve_app.telemetry.parts import RegionWatcher
from tests.contract.state.postgres import run_apart
from tests.contract.state.test_ingresses import Clock
from tests.waiting import eventually


async def test_regions_sign_in_and_differ_from_those_that_have_gone(database: Database) -> None:
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
    await register.drain("us")
    clock.now += 5
    await register.drain("us")
    await register.sign_in("us", {"health": "ok"})
    (us,) = await register.all_regions()
    assert us == Region("us", 1005.0, 1000.0, {"health": "ok"})
    await register.undrain("us")
    (us,) = await register.all_regions()
    assert us.drained_at is None
    for change in (register.drain, register.undrain, register.forget):
        with pytest.raises(RegionUnknown):
            await change("mars")
    operator = Actor("command_line", "ana")
    await register.undrain("us", operator)
    await register.drain("us", operator)
    await register.forget("us", operator)
    log, _ = await AuditLog(database).page(AuditFilter(), 10)
    assert Counter((entry.event, entry.actor, entry.target) for entry in log) == {
        ("region.drained", SERVICE, "us"): 1,
        ("region.undrained", SERVICE, "us"): 1,
        ("region.drained", operator, "us"): 1,
        ("region.forgotten", operator, "us"): 1,
    }


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


async def test_one_region_leads_until_its_lease_ends_and_the_other_takes_over_under_a_new_epoch(
    database: Database,
) -> None:
    clock = Clock()
    us, asia = (Leadership(database, "housekeeping", name, clock, clock) for name in ("us", "asia"))
    assert await us.hold()
    assert not await asia.hold()
    clock.now += LEASE_S - 1
    assert await us.hold()
    clock.now += LEASE_S - 1
    assert not await asia.hold()
    clock.now += 1
    assert await asia.hold()
    assert not await us.hold()
    assert await leaders(database) == {"housekeeping": "asia"}
    async with database.read() as connection:
        assert await connection.scalar(select(leaders_table.c.epoch)) == 2


async def test_lease_of_a_leader_whose_clock_was_ahead_ends_too(database: Database) -> None:
    behind, ahead = Clock(), Clock()
    ahead.now += 86_400
    us = Leadership(database, "housekeeping", "us", ahead, ahead)
    asia = Leadership(database, "housekeeping", "asia", behind, behind)
    assert await us.hold()
    assert not await asia.hold()
    behind.now += LEASE_S
    assert await asia.hold()


async def test_two_that_start_at_once_have_one_leader(database: Database) -> None:
    both = [Leadership(database, "housekeeping", name) for name in ("us", "asia")]
    assert sorted(await asyncio.gather(*(one.hold() for one in both))) == [False, True]


async def test_chores_run_in_the_region_that_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_LEAD_S", 0.01)
    leading, done = {"us": True, "asia": False}, Counter()

    def keeper(name: str) -> Housekeeping:
        async def work() -> None:
            done[name] += 1

        async def leads() -> bool:
            if leading[name] is None:
                raise OperationalError(None, None, ConnectionError())
            return leading[name]

        return Housekeeping([Chore("Counting", 0.01, work)], lambda *_: None, leads)

    running = [asyncio.create_task(keeper(name).run()) for name in leading]
    await eventually(lambda: done["us"] > 2)
    assert done["asia"] == 0
    leading.update(us=None, asia=True)
    await eventually(lambda: done["asia"] > 2)
    before = done["us"]
    await eventually(lambda: done["asia"] > 6)
    assert done["us"] == before
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_watcher_signs_its_region_in_and_shows_the_others(database: Database) -> None:
    clock = Clock()
    await RegionRegister(database, clock).sign_in("asia", {})
    await RegionRegister(database, clock).drain("asia")
    shown: dict[tuple[str, ...], float] = {}
    sink = SimpleNamespace(add=lambda series, values, amount: shown.update({(series.name, *values): amount}))
    clock.now += 20
    watcher = RegionWatcher("us", database, lambda: {"replicas": 3}, sink, clock)
    await watcher.look()
    assert shown == {
        ("manta_region_seen_seconds", "asia"): 20.0,
        ("manta_region_seen_seconds", "us"): 0.0,
        ("manta_region_drained", "asia"): 1.0,
        ("manta_region_drained", "us"): 0.0,
        ("manta_database_standbys", "synchronous"): 0.0,
        ("manta_database_standbys", "asynchronous"): 0.0,
    }
    assert not watcher.is_drained
    clock.now += 60
    with pytest.raises(DBAPIError):
        await _broken(watcher).look()
    assert shown["manta_region_seen_seconds", "us"] == 60.0


async def test_watcher_knows_that_its_region_is_drained_while_the_database_is_away_too(database: Database) -> None:
    register, sink = RegionRegister(database), SimpleNamespace(add=lambda *_: None)
    watcher = RegionWatcher("us", database, dict, sink)
    await watcher.look()
    await register.drain("us")
    assert not watcher.is_drained
    await watcher.look()
    assert watcher.is_drained
    with pytest.raises(DBAPIError):
        await _broken(watcher).look()
    assert watcher.is_drained


async def test_replicas_of_a_region_sign_it_in_once_between_them(database: Database) -> None:
    clock, sink = Clock(), SimpleNamespace(add=lambda *_: None)
    replicas = [
        RegionWatcher("us", database, lambda number=number: {"replicas": number}, sink, clock) for number in range(3)
    ]

    async def replicas_told() -> Any:
        for replica in replicas:
            await replica.look()
        (region,) = await RegionRegister(database).all_regions()
        return region.facts["replicas"], region.seen_at

    assert await replicas_told() == (0, 1000.0)
    clock.now += 3
    assert await replicas_told() == (0, 1000.0)
    clock.now += 1
    assert await replicas_told() == (0, 1004.0)
    clock.now -= 60  # A clock that was ahead was put right.
    assert await replicas_told() == (0, 944.0)


async def test_watcher_shows_what_is_lent_and_signs_in_without_a_gatekeeper_too(database: Database) -> None:
    limits: dict[str, Any] = {
        "others": {"asia": {"away_s": 7.5, "round_trip_s": 0.1}},
        "lent": {"requests": 3, "tokens": 0},
        "borrowed": {"requests": 0, "tokens": 40},
        "keys": [],
    }
    answers: list[Any] = [limits, TransportDown("away"), None]

    async def shares() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    shown: dict[tuple[str, ...], float] = {}
    sink = SimpleNamespace(add=lambda series, values, amount: shown.update({(series.name, *values): amount}))
    clock = Clock()
    watcher = RegionWatcher("us", database, lambda: {"replicas": 3}, sink, clock, shares)
    await watcher.look()
    assert shown["manta_region_limits_away_seconds", "asia"] == 7.5
    assert shown["manta_limits_room", "lent", "requests"] == 3.0
    assert shown["manta_limits_room", "borrowed", "tokens"] == 40.0
    (region,) = await RegionRegister(database).all_regions()
    assert region.facts == {"replicas": 3, "limits": limits}
    for _ in range(2):
        clock.now += 5
        await watcher.look()
        (region,) = await RegionRegister(database).all_regions()
        assert region.facts == {"replicas": 3}


def _broken(watcher: RegionWatcher) -> RegionWatcher:
    async def fail(*_: object) -> None:
        raise OperationalError(None, None, ConnectionError())

    watcher._register.all_regions = fail  # type: ignore[method-assign]
    return watcher


def _of(limit: int, share: int, used: int, lent: int, borrowed: int) -> dict[str, int]:
    return {"limit": limit, "share": share, "used": used, "lent": lent, "borrowed": borrowed}


LIMITS = {
    "others": {},
    "lent": {"requests": 2, "tokens": 0},
    "borrowed": {"requests": 0, "tokens": 40},
    "keys": [
        {"key_id": "key_a", "requests": _of(60, 30, 31, 2, 0), "tokens": _of(1000, 500, 0, 0, 0)},
        {"key_id": "key_b", "requests": _of(60, 30, 0, 0, 0), "tokens": _of(1000, 500, 540, 0, 40)},
    ],
}


def test_command_lists_regions_and_drains_them(sqlite_at, tmp_path) -> None:
    url = sqlite_at(tmp_path / "manta.db")

    async def fill() -> None:
        opened = await connect(url)
        await RegionRegister(opened).sign_in("us", {"version": "1.2", "replicas": 2, "health": "up", "limits": LIMITS})
        await RegionRegister(opened, lambda: time.time() - 100).sign_in("asia", {})
        await Leadership(opened, "housekeeping", "us").hold()
        await PendingCopies(opened).add("us", "files/a")
        await opened.close()

    run_apart(fill)
    place = ["--database-url", url, "--state-dir", str(tmp_path)]

    def manta(*words: str) -> str:
        result = CliRunner().invoke(main, ["regions", *words])
        assert result.exit_code == 0, result.output
        return result.output

    asia, us = json.loads(manta("list", "--json", *place))
    assert (asia["state"], us["state"], us["leads"], us["lacks_objects"]) == ("gone", "up", ["housekeeping"], 1)
    assert (us["version"], us["replicas"], us["standbys"]) == ("1.2", 2, [])
    assert us["limits"] == LIMITS
    assert asia["limits"] is None
    table = [line.split() for line in manta("list", *place).splitlines()]
    assert ["region", "key", "of", "limit", "share", "used", "lent", "borrowed"] in [
        [word.lower() for word in line] for line in table
    ]
    assert [line for line in table if line[1:2] in (["key_a"], ["key_b"])] == [
        ["us", "key_a", "requests", "60", "30", "31", "2", "0"],
        ["us", "key_b", "tokens", "1,000", "500", "540", "0", "40"],
    ]
    assert "undrain us" in manta("drain", "us", *place)
    assert "drained" in manta("list", *place)
    manta("undrain", "us", *place)
    manta("forget", "asia", *place)
    assert [one["state"] for one in json.loads(manta("list", "--json", *place))] == ["up"]
    refused = CliRunner().invoke(main, ["regions", "drain", "mars", *place])
    assert refused.exit_code == 1
    assert "No region called mars" in refused.output
