"""What must not end goes on after an error that it did not expect, and says where it was, but not what it said."""

import asyncio
from collections.abc import Iterator

import pytest

from deployments import waiting
from deployments.waiting import Watch, keep_on
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
