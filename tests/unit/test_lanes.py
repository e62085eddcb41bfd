"""Who has a turn in the event loop, and when."""

import asyncio

from deployments.lanes import Lanes


async def order_of(lanes: Lanes, *names: str) -> list[str]:
    """Return the names in the order in which their tasks, which begin in this order, have run."""
    ran: list[str] = []

    async def run(name: str) -> None:
        async with lanes.enter(name):
            ran.append(name)

    await asyncio.gather(*map(run, names))
    return ran


async def test_a_few_of_each_are_at_once_and_others_go_between() -> None:
    ran = await order_of(Lanes(2), *("flooder",) * 10, "one", "other")
    assert ran[:4] == ["flooder", "flooder", "one", "other"]
    assert ran[4:] == ["flooder"] * 8


async def test_a_place_that_is_held_is_nobody_elses() -> None:
    lanes, may_end = Lanes(1), asyncio.Event()
    ran: list[int] = []

    async def hold(number: int) -> None:
        async with lanes.enter("one"):
            ran.append(number)
            await may_end.wait()

    tasks = [asyncio.create_task(hold(number)) for number in range(3)]
    await asyncio.sleep(0.01)
    assert ran == [0]
    tasks[1].cancel()
    may_end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert ran == [0, 2]


async def test_a_lane_that_nobody_is_in_takes_no_memory() -> None:
    lanes = Lanes(1)
    await order_of(lanes, *map(str, range(100)))
    await asyncio.sleep(0)
    assert not lanes._lanes
