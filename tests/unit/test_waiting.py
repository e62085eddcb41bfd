"""Tasks beside requests: they go on after errors, without quoting them, take turns, and end when they are cancelled."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from deployments import waiting
from deployments.waiting import BackgroundLoop, Lanes, Watch, finish, keep_on, repeat
from tests.logs import lines_of
from tests.waiting import eventually


class Failing(Watch):
    """Fails twice with a message that nobody may read, then looks until it is closed."""

    num_begun, has_ended = 0, False

    async def _keep(self) -> None:
        self.num_begun += 1
        if self.num_begun <= 2:
            raise ValueError("a prompt")
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended = True


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the module has logged; its pauses are short."""
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.001)
    with lines_of(waiting.logger) as lines:
        yield lines


async def test_watch_begins_again_after_an_unexpected_error(told: list[str]) -> None:
    watch = Failing()
    watch.watch()
    await eventually(lambda: watch.num_begun == 3)
    await watch.close()
    assert watch.has_ended
    assert len(told) == 1
    assert told[0].startswith("Failing failed and begins again: ValueError at test_waiting.py:")
    assert "a prompt" not in told[0]


async def test_error_within_a_group_is_named_itself_and_work_that_is_done_does_not_begin_again(told: list[str]) -> None:
    num_begun = 0

    async def work() -> None:
        nonlocal num_begun
        num_begun += 1
        if num_begun == 1:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())

    async def fail() -> None:
        raise KeyError("a secret")

    await keep_on("Housekeeping", work)
    assert num_begun == 2
    assert len(told) == 1
    assert told[0].startswith("Housekeeping failed and begins again: KeyError at test_waiting.py:")


async def test_watch_that_has_not_begun_can_be_closed() -> None:
    watch = Failing()
    await watch.close()
    assert watch.num_begun == 0


async def test_work_is_repeated_after_expected_errors_which_are_named_but_not_quoted(told: list[str]) -> None:
    num_calls = 0

    async def work() -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls <= 2:
            raise OSError("a secret")
        if num_calls == 5:
            raise ValueError

    with pytest.raises(ValueError):
        await repeat("The register", 0.001, work, expected=(OSError,))
    assert told == ["The register failed 1 times in a row: OSError"]


@pytest.mark.parametrize("error", [None, OSError("the disk is gone")])
async def test_work_that_must_be_finished_is_finished_though_its_task_is_cancelled(error: OSError | None) -> None:
    go_on, is_done = asyncio.Event(), False

    async def work() -> None:
        nonlocal is_done
        await go_on.wait()
        is_done = True
        if error is not None:
            raise error

    working = asyncio.create_task(finish(work()))
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.sleep(0)
    assert not working.done()
    go_on.set()
    with pytest.raises(OSError if error is not None else asyncio.CancelledError):
        await working
    assert is_done


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


def test_a_task_that_another_began_just_before_both_are_cancelled_runs() -> None:
    loop, closed, is_working = BackgroundLoop("test"), threading.Event(), threading.Event()

    async def close() -> None:
        closed.set()
        await asyncio.Event().wait()

    async def work() -> None:
        is_working.set()
        time.sleep(0.1)  # noqa: ASYNC251  # The loop stands still until it has been told to cancel.
        await asyncio.sleep(0)
        await asyncio.shield(asyncio.create_task(close()))

    working = loop.start(work())
    is_working.wait()
    loop.stop()
    assert closed.is_set()
    with pytest.raises(CancelledError):
        working.result(0)


def test_what_is_cancelled_is_waited_for() -> None:
    loop, ended = BackgroundLoop("test"), threading.Event()
    is_working = threading.Event()

    async def work() -> None:
        is_working.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    loop.start(work())
    is_working.wait()
    loop.cancel()
    assert ended.is_set()
    loop.stop()
