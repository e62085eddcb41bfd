"""How many lines are let through, and whose."""

import asyncio
from collections import Counter

import pytest

from batch.gate import Gate


async def turns_of_the_loop(num: int) -> None:
    """Let everybody else do that many steps, however slow the machine is."""
    for _ in range(num):
        await asyncio.sleep(0)


async def test_the_limit_grows_fast_until_the_first_refusal_and_slowly_from_then_on() -> None:
    gate = Gate(64)
    start = gate.limit
    for _ in range(64 - start):
        gate.grow()
    assert gate.limit == 64
    gate.grow()
    assert gate.limit == 64
    gate.shrink()
    assert gate.limit == 44
    for _ in range(44):
        gate.grow()
    assert gate.limit in (44, 45)
    for _ in range(2000):
        gate.grow()
    assert gate.limit == 64
    for _ in range(100):
        gate.shrink()
    assert gate.limit == 1


async def test_refusals_that_come_together_count_once() -> None:
    gate = Gate(8)
    for _ in range(8):
        await gate.enter("a")
    for _ in range(8):
        gate.shrink()
    assert gate.limit == 5
    for _ in range(8):
        gate.grow()
    gate.shrink()
    assert gate.limit < 6


async def test_no_more_are_let_in_than_the_limit() -> None:
    gate, most, running = Gate(5), 0, 0

    async def work() -> None:
        nonlocal most, running
        await gate.enter("a")
        running += 1
        most = max(most, running)
        await turns_of_the_loop(20)
        running -= 1
        gate.leave()

    await asyncio.gather(*(work() for _ in range(100)))
    assert most == 5
    assert gate.num_in_flight == 0


async def test_accounts_take_turns() -> None:
    gate, order = Gate(1), []
    await gate.enter("first")

    async def work(account: str) -> None:
        await gate.enter(account)
        order.append(account)
        gate.leave()

    waiting = [asyncio.create_task(work(account)) for account in "aaaabb"]
    await asyncio.sleep(0)
    gate.leave()
    await asyncio.gather(*waiting)
    assert "".join(order) == "ababaa"


async def test_lines_that_come_back_in_waves_are_followed_by_lines_of_all() -> None:
    """As when hundreds are answered in one step of the engine."""
    gate, entered = Gate(64), Counter[str]()

    async def submit(batch: str) -> None:
        while True:
            await gate.enter(batch[0])
            entered[batch] += 1

    submitting = [asyncio.create_task(submit(batch)) for batch in ("a1", "a2", "a3", "b1")]
    for _ in range(10):
        await turns_of_the_loop(200)
        for _ in range(gate.num_in_flight):
            gate.grow()
            gate.leave()
    for task in submitting:
        task.cancel()
    await asyncio.gather(*submitting, return_exceptions=True)
    total = sum(entered.values())
    assert total > 500
    assert abs(entered["b1"] / total - 1 / 2) < 0.05
    assert all(abs(entered[batch] / total - 1 / 6) < 0.05 for batch in ("a1", "a2", "a3"))


async def test_who_gives_up_waiting_takes_nobody_s_place() -> None:
    gate = Gate(1)
    await gate.enter("a")
    waiting = [asyncio.create_task(gate.enter("a")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.leave()
    waiting[1].cancel()  # It has its turn by now, and passes it on.
    await asyncio.wait_for(waiting[2], 1)
    with pytest.raises(asyncio.CancelledError):
        await waiting[1]
    assert gate.num_in_flight == 1
    gate.leave()
    assert gate.num_in_flight == 0
    await asyncio.wait_for(gate.enter("b"), 1)
