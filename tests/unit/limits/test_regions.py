"""Properties of two regions: whatever happens to them and between them, no minute over both holds too much."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.contract import Denied, Granted
from deployments.limits.messages import Posting
from deployments.limits.regions.messages import LoanAsk, LoanRequest
from deployments.limits.window import WINDOW_S
from deployments.state.identity.principal import Principal
from tests.unit.limits.memory import principal_of, secret_of
from tests.unit.limits.regions import NAMES, TICK_S, Region, Regions, admit_for

CLIENTS = (("asia", 0), ("us", 0), ("us", 1))


@dataclass
class Run:
    """The regions, and what was really admitted: (when, how much) for requests, [when, how much] for tokens."""

    world: Regions
    principal: Principal
    clients: list[GatekeeperClient]
    requests: list[tuple[float, int]] = field(default_factory=list)
    tokens: list[list[float]] = field(default_factory=list)
    unsettled: list[tuple[int, Granted, int, int]] = field(default_factory=list)


async def start(requests: int, tokens: int, **values: object) -> Run:
    principal = principal_of("key", requests, tokens)
    world = Regions(principal, **values)  # type: ignore[arg-type]
    clients = [world.regions[name].client() for name, _ in CLIENTS]
    for client in clients:
        assert await client.identify(secret_of("key")) == principal
    world.advance(1.0)
    return Run(world, principal, clients)


def most_in_any_minute(charges: list, speed: float = 1.0) -> float:
    """Return the most in a minute of the faster clock, less a hair."""
    length_s = WINDOW_S / max(1.0, speed) - 1e-6
    return max((sum(a for t, a in charges if begin <= t < begin + length_s) for begin, _ in charges), default=0)


OPERATIONS = st.one_of(
    st.tuples(st.just("admit"), st.integers(0, 2), st.integers(1, 400)),
    st.tuples(st.just("reserve"), st.integers(0, 2), st.integers(1, 900_000)),
    st.tuples(st.just("settle"), st.integers(0, 10), st.integers(0, 100)),
    st.tuples(st.just("advance"), st.integers(1, 60), st.just(0)),
    st.tuples(st.just("advance"), st.integers(1, 1_300), st.just(0)),
    st.tuples(st.just("fill"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("minute"), st.integers(-50, 50), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("delay"), st.integers(1, 600), st.just(0)),
    st.tuples(st.just("loss"), st.integers(0, 60), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("lose"), st.integers(0, 1), st.just(0)),
)


async def carry_out(run: Run, operation: str, first: int, second: int) -> None:
    if operation == "admit":
        for _ in range(second):
            if isinstance(await run.clients[first].admit(run.principal), Granted):
                run.requests.append((run.world.now, 1))
    elif operation == "fill":
        while isinstance(await run.clients[first].admit(run.principal), Granted):
            run.requests.append((run.world.now, 1))
    elif operation == "reserve":
        granted = await run.clients[first].reserve(run.principal, second)
        if isinstance(granted, Granted):
            run.unsettled.append((first, granted, second, len(run.tokens)))
            run.tokens.append([run.world.now, second])
    elif operation == "settle" and run.unsettled:
        index, granted, tokens, place = run.unsettled.pop(first % len(run.unsettled))
        used = tokens * second // 100
        run.clients[index].settle(run.principal, granted=granted, reserved=tokens, used=used)
        run.tokens[place][1] = used
    elif operation == "advance":
        for _ in range(first):
            run.world.advance(TICK_S)
            await run.world.tick()
    else:
        befall(run.world, operation, first, run)


def befall(world: Regions, operation: str, amount: int, run: Run) -> None:
    """What happens to the world, rather than what its clients do."""
    if operation == "minute" and run.requests:
        # To a minute after something was admitted, or just before or after that: where an error would show.
        at, _ = run.requests[amount % len(run.requests)]
        world.advance(max(0.0, at + WINDOW_S + amount / 100 - world.now))
    elif operation == "cut":
        world.is_cut = bool(amount)
    elif operation == "delay":
        world.delay_s = amount / 1000
    elif operation == "loss":
        world.loss = amount / 100
    elif operation == "kill":
        world.regions[NAMES[amount]].kill()
    elif operation == "lose" and not (world.is_cut or world.loss) and world.delay_s < 0.3:
        region = world.regions[NAMES[amount]]
        if region.core.exchanges[region.other].away_since is None:
            region.lose(region.clock() - 5.0)  # All that it admitted earlier is in a snapshot, as if nothing was.


async def simulate(requests: int, tokens: int, operations: list[tuple[str, int, int]], **values: object) -> Run:
    run = await start(requests, tokens, **values)
    await simulate_on(run, operations)
    return run


async def simulate_on(run: Run, operations: list[tuple[str, int, int]]) -> None:
    for operation in operations:
        await carry_out(run, *operation)


without_loss = OPERATIONS.filter(lambda operation: operation[0] != "lose")


# Borrowed room is used at its last moment, and the lender fills its own share a minute later.
@example(600, 50_000, 3.0, 1.003, 1, [("fill", 1, 0), ("advance", 20, 0), ("fill", 2, 0), ("minute", 1, 0)] * 3)
# The borrower forgets its loans while its replicas still hold leases from them.
@example(
    10, 50_000, 0.0, 1.0, 1, [("fill", 1, 0), ("kill", 1, 0), ("fill", 1, 0), ("fill", 0, 0), ("minute", 3, 0)] * 2
)
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([1, 3, 10, 130, 600]),
    st.sampled_from([50_000, 2_000_000]),
    st.floats(-1_000, 1_000),
    st.floats(0.997, 1.003),
    st.integers(0, 1_000),
    st.lists(without_loss, max_size=40),
)
def test_no_minute_over_both_regions_holds_more_than_the_limits(
    requests: int, tokens: int, skew_s: float, speed: float, seed: int, operations: list[tuple[str, int, int]]
) -> None:
    run = asyncio.run(simulate(requests, tokens, operations, skew_s=skew_s, speed=speed, seed=seed))
    assert most_in_any_minute(run.requests, speed) <= requests
    assert most_in_any_minute(run.tokens, speed) <= tokens


@pytest.mark.parametrize("late_s", [1.0 + 0.1 * step for step in range(26)])
@pytest.mark.parametrize("holds_spare", [False, True])
@pytest.mark.parametrize("speed", [1.0, 0.99, 1.01])
def test_a_loan_that_is_used_at_its_end_counts_from_there(late_s: float, holds_spare: bool, speed: float) -> None:
    async def use_late() -> Run:
        run = await start(600, 1, speed=speed)
        run.world.delay_s, run.world.late_s = 0.001, 0.6
        await simulate_on(run, [("advance", 60, 0), ("fill", 1, 0)])
        begun = run.world.now
        while run.world.now < begun + late_s:
            run.world.advance(TICK_S)  # Nothing renews the leases: only what was borrowed is used late.
        if holds_spare:
            await carry_out(run, "admit", 1, 20)
            run.world.advance(0.39)  # What the replica holds is used as late as it may be.
        await carry_out(run, "fill", 1, 0)
        run.world.advance(max(0.0, begun + WINDOW_S - 1.0 - run.world.now))
        for _ in range(160):
            run.world.advance(TICK_S)
            await carry_out(run, "fill", 0, 0)
            await carry_out(run, "fill", 2, 0)
        return run

    run = asyncio.run(use_late())
    assert most_in_any_minute(run.requests, speed) <= 600
    assert len(run.requests) >= (1_150 if late_s < 2.1 else 850)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [1, 10, 120, 600, 6_000])
def test_a_region_alone_reaches_nearly_the_whole_limit_within_two_seconds(name: str, limit: int) -> None:
    async def overload() -> list[float]:
        run = await start(limit, 1_000_000)
        client = run.clients[0 if name == "asia" else 1]
        (decided,) = await admit_for(run.world, [(client, run.principal, limit)], 3.0)
        return [at for at, is_admitted in decided if is_admitted]

    admitted = asyncio.run(overload())
    assert sum(at < admitted[0] + 2.0 for at in admitted) >= 0.95 * limit


def test_all_of_a_large_request_is_found_where_no_share_holds_it() -> None:
    async def ask() -> None:
        run = await start(10, 40_000)
        assert isinstance(await run.clients[1].reserve(run.principal, 30_000), Granted)
        await carry_out(run, "advance", 250, 0)  # Until the region no longer expects more of this.
        assert isinstance(await run.clients[0].reserve(run.principal, 10_001), Denied)
        assert isinstance(await run.clients[0].reserve(run.principal, 10_000), Granted)

    asyncio.run(ask())


def test_steady_traffic_of_one_region_waits_for_no_other() -> None:
    async def steady() -> Run:
        run = await start(600, 1)
        (decided,) = await admit_for(run.world, [(run.clients[1], run.principal, 9.0)], 150.0)
        assert all(is_admitted for _, is_admitted in decided)
        return run

    run = asyncio.run(steady())
    assert run.clients[1].counts["loan_waits"] == 0


def test_the_shares_follow_traffic_that_moves() -> None:
    async def move() -> list[list[tuple[float, bool]]]:
        run = await start(600, 1)
        us, asia = run.clients[1], run.clients[0]
        first = await admit_for(run.world, [(us, run.principal, 8.0)], 90.0)
        second = await admit_for(run.world, [(asia, run.principal, 8.0)], 90.0)
        return first + second

    for decided in asyncio.run(move()):
        assert sum(is_admitted for _, is_admitted in decided) >= 0.99 * len(decided)


def test_traffic_in_both_regions_gets_nearly_the_whole_limit() -> None:
    async def overload() -> Run:
        run = await start(600, 1)
        load = [(run.clients[0], run.principal, 20.0), (run.clients[1], run.principal, 3.0)]
        decided = await admit_for(run.world, load, 130.0)
        run.requests = sorted((at, 1) for one in decided for at, is_admitted in one if is_admitted)
        modest = [is_admitted for at, is_admitted in decided[1] if at >= decided[1][0][0] + 65]
        assert sum(modest) >= 0.95 * len(modest)
        return run

    run = asyncio.run(overload())
    assert most_in_any_minute(run.requests) <= 600
    begun = run.requests[0][0]
    assert sum(begun + 65 <= at < begun + 125 for at, _ in run.requests) >= 0.93 * 600


def test_a_region_that_is_cut_off_keeps_to_its_share_and_decides_at_once() -> None:
    async def cut() -> None:
        run = await start(10, 1)
        run.world.is_cut = True
        run.world.advance(3.0)
        before = run.world.now
        admitted = [isinstance(await run.clients[1].admit(run.principal), Granted) for _ in range(10)]
        assert admitted == [True] * 5 + [False] * 5
        assert run.world.now == before
        assert run.clients[1].quota(run.principal).remaining_requests == 0
        run.world.is_cut = False
        run.world.advance(3.0)
        assert isinstance(await run.clients[1].admit(run.principal), Granted)

    asyncio.run(cut())


def test_what_was_used_beyond_its_reservation_is_covered_by_the_other_share() -> None:
    async def overuse() -> None:
        run = await start(100, 40_000)
        granted = await run.clients[1].reserve(run.principal, 10)
        assert isinstance(granted, Granted)
        run.clients[1].settle(run.principal, granted=granted, reserved=10, used=39_999)
        await carry_out(run, "advance", 40, 0)
        assert isinstance(await run.clients[0].reserve(run.principal, 2), Denied)
        assert isinstance(await run.clients[0].reserve(run.principal, 1), Granted)

    asyncio.run(overuse())


def test_loans_that_are_not_used_come_back() -> None:
    async def borrow() -> tuple[int, int]:
        run = await start(600, 2_000_000)
        await admit_for(run.world, [(run.clients[1], run.principal, 600.0)], 0.6)
        await carry_out(run, "advance", 200, 0)
        admitted = await admit_for(run.world, [(run.clients[0], run.principal, 600.0)], 2.0)
        return sum(ok for _, ok in admitted[0]), 600 - run.world.regions["us"].core.shares()["keys"][0]["requests"][
            "used"
        ]

    admitted, unused = asyncio.run(borrow())
    assert unused >= 150
    assert admitted >= unused - 3


def lent(region: Region) -> int:
    return region.core.shares()["lent"]["requests"]


def test_loans_are_reported_to_a_lender_that_lost_its_account() -> None:
    async def lose() -> None:
        run = await start(10, 1)
        admitted = [isinstance(await run.clients[1].admit(run.principal), Granted) for _ in range(10)]
        assert admitted == [True] * 10
        asia = run.world.regions["asia"]
        assert lent(asia) == 5
        asia.lose(asia.clock() - 30.0)
        await carry_out(run, "advance", 60, 0)
        run.world.is_cut = True
        assert isinstance(await run.clients[0].admit(run.principal), Denied)

    asyncio.run(lose())


def test_a_lender_that_is_killed_remembers_what_it_lent() -> None:
    async def kill() -> None:
        run = await start(10, 1)
        for _ in range(10):
            await run.clients[1].admit(run.principal)
        run.world.regions["asia"].kill()
        run.world.is_cut = True
        assert isinstance(await run.clients[0].admit(run.principal), Denied)

    asyncio.run(kill())


def test_what_a_dead_lender_had_lent_its_replicas_do_not_use() -> None:
    async def kill() -> None:
        run = await start(10, 1_000)
        asia, us = run.clients[0], run.clients[1]
        for _ in range(10):
            await us.admit(run.principal)
        assert isinstance(await us.reserve(run.principal, 800), Granted)
        assert lent(run.world.regions["asia"]) == 5
        await carry_out(run, "advance", 10, 0)
        run.world.is_cut = run.world.regions["asia"].is_down = True
        await carry_out(run, "advance", 100, 0)
        assert isinstance(await asia.admit(run.principal), Denied)
        assert isinstance(await asia.reserve(run.principal, 300), Denied)
        run.world.advance(60.0)
        admitted = [isinstance(await asia.admit(run.principal), Granted) for _ in range(6)]
        assert admitted == [True] * 5 + [False]

    asyncio.run(kill())


def test_a_request_that_comes_again_is_answered_alike_and_counts_once() -> None:
    async def repeat() -> None:
        run = await start(100, 1)
        us, asia = run.world.regions["us"], run.world.regions["asia"]
        lender = us.core.exchanges["asia"].lender
        ask = LoanRequest(list(NAMES), "us", "us:1", lender, 1, 2.0, [LoanAsk("key", 20, 0)], [], {})
        reply = asia.core.lend(ask)
        assert asia.core.lend(ask) == reply
        assert lent(asia) == reply.lent[0].requests == 20
        refund = Posting("key", "requests", reply.lent[0].at, 5)
        refunded = ask._replace(serial=2, asks=[], refunds=[refund])
        for _ in range(3):
            asia.core.lend(refunded)
        assert asia.core.lend(ask).lent == []  # An older one that comes late.
        assert lent(asia) == 15
        asia.kill()
        assert asia.core.lend(refunded).is_stale
        assert asia.core.lend(refunded._replace(lender=asia.core.epoch)).lent == []
        assert asia.core.ledger.limits("key").requests.used == 15  # type: ignore[union-attr]

    asyncio.run(repeat())


def test_regions_that_are_configured_differently_lend_nothing() -> None:
    async def differ() -> None:
        run = await start(100, 1)
        us, asia = run.world.regions["us"], run.world.regions["asia"]
        lender = us.core.exchanges["asia"].lender
        ask = LoanRequest(["asia", "eu", "us"], "us", "us:1", lender, 1, 2.0, [LoanAsk("key", 20, 0)], [], {})
        reply = asia.core.lend(ask)
        assert reply.problem is not None
        assert reply.lent == []
        request = us.core.next_request("asia")
        us.core.take_reply("asia", request, reply)
        assert us.core.exchanges["asia"].away_since is not None
        assert asia.core.lend(ask._replace(regions=list(NAMES), valid_s=1e9)).problem is not None

    asyncio.run(differ())
