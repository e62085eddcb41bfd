"""Whose request is prepared next."""

import asyncio

from deployments.replica.scheduling.preparing import QUIET_S, Notice, Preparing
from tests.twins.gatekeeper import TestClock


class Preparations:
    """Begins requests, and ends the preparation of each when the test says so."""

    def __init__(self) -> None:
        self.clock = TestClock(100.0)
        self.notice = Notice()
        self._preparing = Preparing(self.notice, self.clock)
        self._may_end: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, priority: int, account: str = "") -> None:
        self._may_end[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._prepare(name, priority, account))
        await settle()

    async def end(self, name: str) -> None:
        self._may_end[name].set()
        await settle()

    async def _prepare(self, name: str, priority: int, account: str) -> None:
        async with self._preparing.turn(priority, account):
            self.begun.append(name)
            await self._may_end[name].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def after_an_interactive_request() -> Preparations:
    preparations = Preparations()
    await preparations.begin("one", 0)
    await preparations.end("one")
    preparations.begun.clear()
    return preparations


async def test_interactive_requests_wait_for_nobody() -> None:
    preparations = Preparations()
    for name, priority in (("line", 1), ("one", 0), ("other", 0), ("urgent", -1)):
        await preparations.begin(name, priority)
    assert preparations.begun == ["line", "one", "other", "urgent"]


async def test_an_account_that_sends_many_at_once_holds_nobody_else_up() -> None:
    preparations = Preparations()
    for name in "abcdef":
        await preparations.begin(name, 0, "flooder")
    assert preparations.begun == [*"abcd"]
    await preparations.begin("one", 0, "other")
    assert preparations.begun[4:] == ["one"]
    await preparations.end("b")
    assert preparations.begun[5:] == ["e"]


async def test_lines_are_prepared_one_by_one() -> None:
    preparations = await after_an_interactive_request()
    for name in ("first", "second", "third"):
        await preparations.begin(name, 1)
    assert preparations.begun == ["first"]
    await preparations.end("first")
    assert preparations.begun == ["first", "second"]
    await preparations.end("second")
    assert preparations.begun == ["first", "second", "third"]


async def test_lines_are_prepared_all_at_once_where_nobody_else_has_asked_for_a_moment() -> None:
    preparations = await after_an_interactive_request()
    preparations.clock.advance(QUIET_S + 0.1)
    for name in ("first", "second", "third"):
        await preparations.begin(name, 1)
    assert preparations.begun == ["first", "second", "third"]


async def test_lines_wait_until_no_interactive_request_is_prepared() -> None:
    preparations = Preparations()
    await preparations.begin("one", 0)
    await preparations.begin("other", 0)
    await preparations.begin("line", 1)
    await preparations.end("one")
    assert preparations.begun == ["one", "other"]
    await preparations.end("other")
    assert preparations.begun == ["one", "other", "line"]


async def test_lines_do_not_wait_for_ever() -> None:
    preparations = Preparations()
    await preparations.begin("one that takes long", 0)
    await preparations.begin("line", 1)
    assert preparations.begun == ["one that takes long"]
    async with asyncio.timeout(10):
        while "line" not in preparations.begun:  # noqa: ASYNC110 - a real wait ends it.
            await asyncio.sleep(0.01)


async def test_a_line_that_is_taken_back_leaves_its_turn_to_the_next() -> None:
    preparations = await after_an_interactive_request()
    await preparations.begin("first", 1)
    await preparations.begin("second", 1)
    await preparations.begin("third", 1)
    for name in ("second", "first"):
        preparations.tasks[name].cancel()
        await settle()
    assert preparations.begun == ["first", "third"]


async def test_a_request_that_fails_holds_nobody_up() -> None:
    preparing = Preparing()
    for priority in (0, 1):
        try:
            async with preparing.turn(priority):
                raise ValueError("not valid")
        except ValueError:
            pass
    async with asyncio.timeout(10), preparing.turn(1):
        pass


async def test_the_engine_is_told_that_an_interactive_request_is_on_its_way_until_shortly_after_it_is_prepared() -> (
    None
):
    preparations = Preparations()
    await preparations.begin("one", 0)
    assert preparations.notice.until == 100.02
    preparations.clock.advance(0.001)
    await preparations.begin("other", 0)
    await preparations.end("one")
    assert preparations.notice.until == 100.021
    preparations.clock.advance(0.001)
    await preparations.end("other")
    assert preparations.notice.until == 100.007


async def test_the_engine_waits_for_no_line_and_for_no_request_that_is_refused() -> None:
    preparations = Preparations()
    await preparations.begin("line", 1)
    assert preparations.notice.until == 0.0
    await preparations.begin("one", 0)
    preparations.tasks["one"].cancel()
    await settle()
    assert preparations.notice.until == 0.0
