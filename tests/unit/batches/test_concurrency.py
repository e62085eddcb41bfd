"""How many lines are let through, and whose."""

import asyncio
from collections import Counter

import pytest

from batch.concurrency import ConcurrencyLimiter


async def turns_of_the_loop(num: int) -> None:
    """Let everybody else do that many steps, however slow the machine is."""
    for _ in range(num):
        await asyncio.sleep(0)


async def test_the_limit_grows_fast_until_the_first_refusal_and_slowly_from_then_on() -> None:
    limiter = ConcurrencyLimiter(64)
    start = limiter.limit
    for _ in range(64 - start):
        limiter.grow()
    assert limiter.limit == 64
    limiter.grow()
    assert limiter.limit == 64
    limiter.shrink()
    assert limiter.limit == 44
    for _ in range(44):
        limiter.grow()
    assert limiter.limit in (44, 45)
    for _ in range(2000):
        limiter.grow()
    assert limiter.limit == 64
    for _ in range(100):
        limiter.shrink()
    assert limiter.limit == 1


async def test_refusals_that_come_together_count_once() -> None:
    limiter = ConcurrencyLimiter(8)
    for _ in range(8):
        await limiter.acquire("a")
    for _ in range(8):
        limiter.shrink()
    assert limiter.limit == 5
    for _ in range(8):
        limiter.grow()
    limiter.shrink()
    assert limiter.limit < 6


async def test_no_more_are_let_in_than_the_limit() -> None:
    limiter, most, running = ConcurrencyLimiter(5), 0, 0

    async def work() -> None:
        nonlocal most, running
        await limiter.acquire("a")
        running += 1
        most = max(most, running)
        await turns_of_the_loop(20)
        running -= 1
        limiter.release()

    await asyncio.gather(*(work() for _ in range(100)))
    assert most == 5
    assert limiter.num_in_flight == 0


async def test_accounts_take_turns() -> None:
    limiter, order = ConcurrencyLimiter(1), []
    await limiter.acquire("first")

    async def work(account: str) -> None:
        await limiter.acquire(account)
        order.append(account)
        limiter.release()

    waiting = [asyncio.create_task(work(account)) for account in "aaaabb"]
    await asyncio.sleep(0)
    limiter.release()
    await asyncio.gather(*waiting)
    assert "".join(order) == "ababaa"


async def test_lines_that_come_back_in_waves_are_followed_by_lines_of_all() -> None:
    """As when hundreds are answered in one step of the engine."""
    limiter, entered = ConcurrencyLimiter(64), Counter[str]()

    async def submit(batch: str) -> None:
        while True:
            await limiter.acquire(batch[0])
            entered[batch] += 1

    submitting = [asyncio.create_task(submit(batch)) for batch in ("a1", "a2", "a3", "b1")]
    for _ in range(10):
        await turns_of_the_loop(200)
        for _ in range(limiter.num_in_flight):
            limiter.grow()
            limiter.release()
    for task in submitting:
        task.cancel()
    await asyncio.gather(*submitting, return_exceptions=True)
    total = sum(entered.values())
    assert total > 500
    assert abs(entered["b1"] / total - 1 / 2) < 0.05
    assert all(abs(entered[batch] / total - 1 / 6) < 0.05 for batch in ("a1", "a2", "a3"))


async def test_who_gives_up_waiting_takes_nobody_s_place() -> None:
    limiter = ConcurrencyLimiter(1)
    await limiter.acquire("a")
    waiting = [asyncio.create_task(limiter.acquire("a")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    limiter.release()
    waiting[1].cancel()  # It has its turn by now, and passes it on.
    await asyncio.wait_for(waiting[2], 1)
    with pytest.raises(asyncio.CancelledError):
        await waiting[1]
    assert limiter.num_in_flight == 1
    limiter.release()
    assert limiter.num_in_flight == 0
    await asyncio.wait_for(limiter.acquire("b"), 1)
