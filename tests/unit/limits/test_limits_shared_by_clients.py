"""Properties of several clients that share one key: whatever happens between them, no minute holds too much."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.contract import Granted
from deployments.limits.window import WINDOW_S
from tests.unit.limits.memory import World, principal_of, secret_of

NUM_CLIENTS = 3


@dataclass
class Run:
    """The world, and what was really admitted in it: (when, how much) for requests, [when, how much] for tokens."""

    world: World
    clients: list[GatekeeperClient]
    requests: list[tuple[float, int]] = field(default_factory=list)
    tokens: list[list[float]] = field(default_factory=list)
    unsettled: list[tuple[int, Granted, int, int]] = field(default_factory=list)


def most_in_any_minute(charges: list) -> float:
    # A hair less than a minute: clocks that add up fractions are not exact.
    return max((sum(a for t, a in charges if start <= t < start + WINDOW_S - 1e-6) for start, _ in charges), default=0)


OPERATIONS = st.one_of(
    st.tuples(st.just("admit"), st.integers(0, NUM_CLIENTS - 1), st.integers(1, 40)),
    st.tuples(st.just("reserve"), st.integers(0, NUM_CLIENTS - 1), st.integers(1, 900_000)),
    st.tuples(st.just("settle"), st.integers(0, 10), st.integers(0, 100)),
    st.tuples(st.just("tick"), st.integers(0, NUM_CLIENTS - 1), st.just(0)),
    st.tuples(st.just("advance"), st.integers(0, 3_000), st.just(0)),
    st.tuples(st.just("rush"), st.integers(1, 60), st.integers(1, 200_000)),
    st.tuples(st.just("lose reply"), st.just(0), st.just(0)),
    st.tuples(st.just("kill"), st.just(0), st.just(0)),
    st.tuples(st.just("latency"), st.integers(0, 300), st.just(0)),
    st.tuples(st.just("minute"), st.integers(-50, 50), st.just(0)),
    st.tuples(st.just("fill"), st.integers(0, NUM_CLIENTS - 1), st.just(0)),
)


async def admit(run: Run, index: int) -> None:
    if isinstance(await run.clients[index].admit(run_principal(run)), Granted):
        run.requests.append((run.world.clock(), 1))


def run_principal(run: Run):
    return run.world.keyring.principal("key")


async def reserve(run: Run, index: int, tokens: int) -> None:
    granted = await run.clients[index].reserve(run_principal(run), tokens)
    if isinstance(granted, Granted):
        run.unsettled.append((index, granted, tokens, len(run.tokens)))
        run.tokens.append([run.world.clock(), tokens])


async def carry_out(run: Run, operation: str, first: int, second: int) -> None:
    if operation == "admit":
        for _ in range(second):
            await admit(run, first)
    elif operation == "reserve":
        await reserve(run, first, second)
    elif operation == "settle" and run.unsettled:
        index, granted, tokens, place = run.unsettled.pop(first % len(run.unsettled))
        used = tokens * second // 100
        run.clients[index].settle(run_principal(run), granted=granted, reserved=tokens, used=used)
        run.tokens[place][1] = used
    elif operation == "tick":
        await run.clients[first].tick()
    elif operation == "fill":
        while len(run.requests) < 3_000 and isinstance(await run.clients[first].admit(run_principal(run)), Granted):
            run.requests.append((run.world.clock(), 1))
    elif operation == "rush":
        await asyncio.gather(*(admit(run, index % NUM_CLIENTS) for index in range(first)))
        await asyncio.gather(*(reserve(run, index, second) for index in range(NUM_CLIENTS)))
    else:
        befall(run, operation, first)


def befall(run: Run, operation: str, amount: int) -> None:
    """What happens to the world, rather than what its clients do."""
    if operation == "advance":
        run.world.clock.advance(amount / 100)
    elif operation == "minute" and run.requests:
        # To a minute after something was admitted, or just before or after that: where an error would show.
        at, _ = run.requests[amount % len(run.requests)]
        run.world.clock.now = max(run.world.clock.now, at + WINDOW_S + amount / 100)
    elif operation == "lose reply":
        run.world.loses_replies = True
    elif operation == "kill":
        run.world.kill()
    elif operation == "latency":
        run.world.latency_s = amount / 1000


async def simulate(requests: int, tokens: int, operations: list[tuple[str, int, int]]) -> Run:
    world = World(principal_of("key", requests, tokens))
    run = Run(world, [world.client() for _ in range(NUM_CLIENTS)])
    for client in run.clients:
        assert await client.identify(secret_of("key")) is not None
    for operation in operations:
        await carry_out(run, *operation)
    return run


# What one client was granted is taken up after the others' messages took their time: the lease has ended by then.
@example(3, 50_000, [("latency", 82, 0), ("rush", 4, 1), ("latency", 0, 0), ("minute", -1, 0), ("admit", 0, 1)])
@given(st.sampled_from([3, 10, 130, 600]), st.sampled_from([50_000, 2_000_000]), st.lists(OPERATIONS, max_size=50))
def test_no_minute_holds_more_than_the_limits(
    requests: int, tokens: int, operations: list[tuple[str, int, int]]
) -> None:
    run = asyncio.run(simulate(requests, tokens, operations))
    assert most_in_any_minute(run.requests) <= requests
    assert most_in_any_minute(run.tokens) <= tokens
    assert sum(client.counts["times_away"] for client in run.clients) == 0


async def admit_beside(run: Run, index: int) -> None:
    """Admit a request while every client ticks, as they do in the background."""
    asking = asyncio.create_task(admit(run, index))
    while not asking.done():
        await asyncio.sleep(0)
        for client in run.clients:
            await client.tick()


@settings(max_examples=50)
@example([], [1], [0, 0, 0, 0, 0, 1, 1], False)  # Client 1 still grants its part when client 0 takes all that is left.
@given(
    st.sets(st.integers(0, 2 * NUM_CLIENTS - 1)).map(lambda each: [one % NUM_CLIENTS for one in sorted(each)]),
    st.lists(st.integers(0, NUM_CLIENTS - 1), max_size=12),
    st.lists(st.integers(0, NUM_CLIENTS - 1), min_size=1, max_size=20),
    st.booleans(),
)
def test_no_minute_holds_more_when_the_gatekeeper_is_back_and_not_all_know_it_yet(
    before: list[int], alone: list[int], after: list[int], is_cut_off: bool
) -> None:
    """Before it went away, no client was granted more than its part: a third of the limit."""

    async def go_away_and_come_back() -> Run:
        run = await simulate(9, 50_000, [("admit", index, 1) for index in [0, 1, 2, *before]])
        for _ in range(2):
            run.world.clock.advance(0.3)
            for client in run.clients:
                await client.tick()
        run.world.is_down = True
        for index in alone:
            await admit(run, index)
        run.world.is_down = False
        run.world.loses_replies = is_cut_off
        run.world.kill()
        for index in after:
            await admit_beside(run, index)
        return run

    assert len(asyncio.run(go_away_and_come_back()).requests) <= 9


# A gatekeeper that is back answers nothing at first, so that what client 2 asks for ahead is granted after the minute.
@example(10, 2_000_000, [("reserve", 2, 3), ("reserve", 2, 4), ("kill", 0, 0)])
@settings(max_examples=50)
@given(st.sampled_from([10, 600]), st.sampled_from([50_000, 2_000_000]), st.lists(OPERATIONS, max_size=30))
def test_everything_is_free_again_after_an_idle_minute(
    requests: int, tokens: int, operations: list[tuple[str, int, int]]
) -> None:
    async def run_and_wait() -> None:
        run = await simulate(requests, tokens, operations)
        run.world.latency_s, run.world.loses_replies = 0.0, False
        for client in run.clients:
            await client.tick()
        run.world.clock.advance(WINDOW_S + 5.0)
        for _ in range(3):
            run.world.clock.advance(0.1)
            for client in run.clients:
                await client.tick()
        for _ in range(requests):
            assert isinstance(await run.clients[0].admit(run_principal(run)), Granted)
        run.world.clock.advance(6.0)  # What clients hold beyond their need comes back when their leases end.
        for client in run.clients:
            await client.tick()
        assert isinstance(await run.clients[1].reserve(run_principal(run), tokens), Granted)

    asyncio.run(run_and_wait())


def test_a_lease_that_is_used_at_its_end_counts_from_there() -> None:
    async def use_late() -> Run:
        run = await simulate(600, 1, [("admit", 0, 20)])
        held = run.clients[0]._leases._keys["key"].requests.left
        assert held > 5
        run.world.clock.advance(0.39)
        await admit_all(run, 0, held)
        await carry_out(run, "fill", 1, 0)
        for _ in range(50):
            run.world.clock.now = max(run.world.clock.now + 0.01, run.requests[0][0] + WINDOW_S)
            await carry_out(run, "fill", 2, 0)
        return run

    async def admit_all(run: Run, index: int, times: int) -> None:
        before = run.world.num_syncs
        for _ in range(times):
            await admit(run, index)
        assert run.world.num_syncs == before

    run = asyncio.run(use_late())
    assert most_in_any_minute(run.requests) <= 600
    assert len(run.requests) > 600


def test_overload_from_several_clients_gets_nearly_all_of_a_large_limit() -> None:
    async def overload() -> Run:
        run = await simulate(600, 1, [])
        for _ in range(4_000):  # 25 requests in 0.1 s: 2.5 times what is allowed.
            for index in range(NUM_CLIENTS):
                await admit(run, index)
            run.world.clock.advance(0.03)
            if run.world.clock.now % 0.12 < 0.03:
                await asyncio.gather(*(client.tick() for client in run.clients))
        return run

    run = asyncio.run(overload())
    start = run.requests[0][0]
    assert most_in_any_minute(run.requests) <= 600
    assert sum(1 for at, _ in run.requests if at < start + WINDOW_S) >= 595
    assert run.world.num_syncs < len(run.requests) + 4_000
