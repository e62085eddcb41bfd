"""Processes that are killed or paused while they run a batch: another goes on, and each line has one outcome."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.batches.process import LEASE_S, POINTS, open_all
from tests.contract.batches.runs import Runs, ended


@pytest.fixture
async def runs(database_url: str, tmp_path: Path) -> AsyncIterator[Runs]:
    objects_url = (tmp_path / "objects").as_uri()
    stores = await open_all(database_url, objects_url)
    yield Runs(database_url, objects_url, stores)
    await stores.close()


@pytest.mark.parametrize("point", POINTS)
async def test_a_batch_survives_a_kill(runs: Runs, point: str) -> None:
    batch_id = await runs.submit()
    assert await ended(runs.start(point)) == -signal.SIGKILL
    assert await ended(runs.start()) == 0
    await runs.check(batch_id)


async def test_a_batch_survives_kills_at_every_point_one_after_the_other(runs: Runs) -> None:
    batch_id = await runs.submit()
    points = list(POINTS)
    for point in points[:-1]:
        assert await ended(runs.start(point)) == -signal.SIGKILL
    assert await ended(runs.start()) == 0
    await runs.check(batch_id)


async def test_a_process_that_was_paused_past_its_claim_does_no_harm(runs: Runs) -> None:
    batch_id = await runs.submit()
    paused = runs.start()
    await runs.until_done(batch_id, 4)
    paused.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 0.2)
    other = runs.start()
    async with asyncio.timeout(30):
        while (await runs.stores.batches.find("acct", batch_id)).state.epoch < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    paused.send_signal(signal.SIGCONT)
    assert await ended(other) == 0
    assert await ended(paused) == 0
    await runs.check(batch_id)


async def test_many_processes_share_the_batches(runs: Runs) -> None:
    batch_id = await runs.submit()
    processes = [runs.start() for _ in range(3)]
    assert [await ended(process) for process in processes] == [0, 0, 0]
    await runs.check(batch_id)
