"""Processes that run one batch over the same stores, and what must have become of it."""

import asyncio
import os
import signal
from collections.abc import Collection, Sequence
from typing import Any

import orjson
import psutil
from sqlalchemy import select

from batch.stores import Stores
from deployments.state.batches.rows import NewBatch
from deployments.state.database.tables.content import batch_segments
from deployments.state.database.tables.usage import USAGE as USAGE_TABLES
from deployments.state.files.content import NewFile
from tests.contract.batches.process import run
from tests.contract.http.answers import MODEL, USAGE
from tests.forks import FORKS, import_first
from tests.twins.keys import principal_of_key
from tests.waiting import eventually

NUM_LINES = 40
PRINCIPAL = principal_of_key(account="acct", tier="standard")
import_first(run.__module__)


class Process:
    """A process that runs batches. `errors` is the file descriptor of what it writes to its error stream."""

    def __init__(self, *arguments: str) -> None:
        self._errors, errors = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=run, args=(errors, *arguments))
        self._process.start()
        errors.close()
        self.errors = self._errors.fileno()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """What it ended with, the signal's number below zero if one ended it; None while it runs."""
        return self._process.exitcode

    async def ended(self, timeout_s: float = 60) -> int:
        """Return the status with which it ends, by itself or killed."""
        await asyncio.to_thread(self._process.join, timeout_s)
        assert self.status in (0, -signal.SIGKILL), os.read(self.errors, 65_536).decode()
        return self.status

    async def stopped(self) -> None:
        """Wait until it has stopped itself."""
        seen = psutil.Process(self.pid)
        await eventually(lambda: self.status is not None or seen.status() == psutil.STATUS_STOPPED, 60)
        assert self.status is None, f"{self.status}: {os.read(self.errors, 65_536).decode()}"

    def remove(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.join()


class Runs:
    """Processes over one database and one directory."""

    def __init__(self, database_url: str, objects_at: str, stores: Stores) -> None:
        self.places = [database_url, objects_at]
        self.stores = stores
        self._started: list[Process] = []

    def start(self, *point: str) -> Process:
        """Start one, which ends or stops itself at the point, or ends with the batch."""
        process = Process(*self.places, *point)
        self._started.append(process)
        return process

    async def close(self) -> None:
        """End what has not ended."""
        for process in self._started:
            process.remove()
        await self.stores.close()

    async def submit(self) -> str:
        """Create the batch, a chat in each line; return its id."""
        asks = [[{"role": "user", "content": f"Question {number}"}] for number in range(NUM_LINES)]
        return await self.submit_lines("/v1/chat/completions", [{"model": MODEL, "messages": ask} for ask in asks])

    async def submit_lines(self, url: str, bodies: Sequence[dict[str, object]]) -> str:
        """Create a batch of requests with these bodies; return its id."""
        lines = []
        for number, body in enumerate(bodies):
            lines.append(orjson.dumps({"custom_id": f"{number}", "method": "POST", "url": url, "body": body}))
        async with self.stores.files.create(NewFile("acct", "key-1", "file-1")) as writer:
            await writer.write(b"\n".join(lines))
        now = self.stores.files.clock()
        await self.stores.files.record(
            writer.row(purpose="batch", filename="in.jsonl", created_at=now, expires_at=now + 3600)
        )
        new = NewBatch(PRINCIPAL, "file-1", url, "24h", 86_400.0)
        return (await self.stores.batches.create(new)).batch_id

    async def check(self, batch_id: str, given_up: Collection[int] = ()) -> None:
        """Each line has one outcome in its place, the counts add up, and tokens were billed once.

        Lines that were `given_up` have failed, all others not.
        """
        num_done = NUM_LINES - len(given_up)
        batch = await self.stores.batches.find("acct", batch_id)
        state = batch.state
        assert state.status == "completed"
        assert (state.num_total, state.num_completed, state.num_failed) == (NUM_LINES, num_done, len(given_up))
        assert state.tokens.prompt == num_done * USAGE.prompt_tokens
        answers = await self.answers(batch_id)
        assert [one["custom_id"] for one in answers] == [str(number) for number in range(NUM_LINES)]
        failed = [number for number, one in enumerate(answers) if one["response"]["status_code"] != 200]
        assert failed == sorted(given_up)
        assert len({one["id"] for one in answers}) == NUM_LINES
        async with self.stores.database.read() as connection:
            rows = (await connection.execute(select(USAGE_TABLES["1d"]))).mappings().all()
            assert (await connection.execute(select(batch_segments))).all() == []
        assert sum(row["num_requests"] for row in rows) == NUM_LINES
        assert sum(row["prompt_tokens"] for row in rows) == num_done * USAGE.prompt_tokens

    async def answers(self, batch_id: str) -> list[dict[str, Any]]:
        """Return the lines of a batch's output file."""
        batch = await self.stores.batches.find("acct", batch_id)
        assert batch.output_file_id is not None
        output = await self.stores.files.find("acct", batch.output_file_id)
        content = b"".join([piece async for piece in self.stores.files.read(output)])
        return [orjson.loads(line) for line in content.splitlines()]

    async def steps(self, batch_id: str) -> dict[str, float]:
        """Return the steps that a batch has taken, with their times."""
        state = await self.stores.work.look(batch_id)
        taken = {name: getattr(state, name) for name in ("in_progress_at", "finalizing_at", "completed_at")}
        return {name: at for name, at in taken.items() if at is not None}

    async def release(self, batch_id: str) -> None:
        """Give up the claim of a process that was killed."""
        state = await self.stores.work.look(batch_id)
        await self.stores.work.release(batch_id, state.epoch)

    async def until_claimed(self, batch_id: str, epoch: int) -> None:
        """Wait until a batch has been claimed, at least in this epoch."""
        async with asyncio.timeout(60):
            while (await self.stores.work.look(batch_id)).epoch < epoch:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def until_done(self, batch_id: str, num_lines: int) -> None:
        """Wait until `num_lines` are done."""
        async with asyncio.timeout(60):
            while (await self.stores.batches.find("acct", batch_id)).state.num_completed < num_lines:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
