"""Processes that are killed or paused while they run a batch: another goes on, and each line has one outcome."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from sqlalchemy import select

from batch.stores import Stores
from deployments.state.batch_rows import NewBatch
from deployments.state.file_content import NewFile
from deployments.state.protocol import Principal
from deployments.state.tables import batch_segments, usage
from tests.contract.batches.process import LEASE_S, POINTS, open_all
from tests.contract.http.answers import MODEL, USAGE

ROOT = Path(__file__).parents[3]
NUM_LINES = 40
PRINCIPAL = Principal("key-1", "acct", "org", "standard", 10, 1000)


class Runs:
    """Processes over one database and one directory."""

    def __init__(self, database_url: str, objects_url: str, stores: Stores) -> None:
        self.places = [database_url, objects_url]
        self.stores = stores

    def start(self, *point: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.contract.batches.process", *self.places, *point]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)

    async def submit(self) -> str:
        lines = []
        for number in range(NUM_LINES):
            body = {"model": MODEL, "messages": [{"role": "user", "content": f"Question {number}"}]}
            url = "/v1/chat/completions"
            lines.append(orjson.dumps({"custom_id": f"{number}", "method": "POST", "url": url, "body": body}))
        async with self.stores.files.create(NewFile("acct", "key-1", "file-1")) as writer:
            await writer.write(b"\n".join(lines))
        now = self.stores.files.clock()
        await self.stores.files.record(
            writer.row(purpose="batch", filename="in.jsonl", created_at=now, expires_at=now + 3600)
        )
        new = NewBatch(PRINCIPAL, "file-1", "/v1/chat/completions", "24h", 86_400.0)
        return (await self.stores.batches.create(new)).batch_id

    async def check(self, batch_id: str) -> None:
        """Each line has one outcome in its place, the counts add up, and tokens were billed once."""
        batch = await self.stores.batches.find("acct", batch_id)
        state = batch.state
        assert state.status == "completed"
        assert (state.num_total, state.num_completed, state.num_failed) == (NUM_LINES, NUM_LINES, 0)
        assert state.tokens.prompt == NUM_LINES * USAGE.prompt_tokens
        assert batch.output_file_id is not None
        output = await self.stores.files.find("acct", batch.output_file_id)
        content = b"".join([piece async for piece in self.stores.files.read(output)])
        answers = [orjson.loads(line) for line in content.splitlines()]
        assert [one["custom_id"] for one in answers] == [str(number) for number in range(NUM_LINES)]
        assert {one["response"]["status_code"] for one in answers} == {200}
        assert len({one["id"] for one in answers}) == NUM_LINES
        async with self.stores.database.read() as connection:
            (row,) = (await connection.execute(select(usage))).mappings()
            assert (await connection.execute(select(batch_segments))).all() == []
        assert (row["num_requests"], row["prompt_tokens"]) == (NUM_LINES, NUM_LINES * USAGE.prompt_tokens)


@pytest.fixture
async def runs(database_url: str, tmp_path: Path) -> AsyncIterator[Runs]:
    objects_url = (tmp_path / "objects").as_uri()
    stores = await open_all(database_url, objects_url)
    yield Runs(database_url, objects_url, stores)
    await stores.close()


async def ended(process: subprocess.Popen[bytes], timeout_s: float = 60) -> int:
    _, told = await asyncio.to_thread(process.communicate, timeout=timeout_s)
    assert process.returncode in (0, -signal.SIGKILL), told.decode()
    return process.returncode


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
    async with asyncio.timeout(30):
        while (await runs.stores.batches.find("acct", batch_id)).state.num_completed < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
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
