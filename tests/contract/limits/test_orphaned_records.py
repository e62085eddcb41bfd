"""An ingress replica that is killed, a real process: what it had answered is counted once."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.limits.client.record_journal import RecordJournal
from deployments.limits.client.request_log import ShippedRequestLog
from deployments.limits.messages import TransportDown
from deployments.limits.orphaned_records import OrphanedRecords
from deployments.patience import USUAL
from deployments.state.database.connection import Database
from deployments.state.usage.store import UsageStore
from tests.contract.limits import replica
from tests.contract.limits.replica import NUM_RECORDS
from tests.contract.state.processes import DirectTransport, kill, resolved, start
from tests.contract.state.records import record
from tests.waiting import eventually


class Service:
    """A gatekeeper, the folder of records on a node, and when the requests came in."""

    def __init__(self, database: Database, database_url: str, folder: Path) -> None:
        self.usage = UsageStore(database)
        self.at = time.time()
        self.directory = folder / "records"
        self.state = resolved(database_url, folder / "state")
        self.transport = DirectTransport(start(self.state))
        self.left = OrphanedRecords(self.directory, self.transport)

    async def num_counted(self) -> int:
        return sum(row.num_requests for row in await self.usage.by_day())

    def leave_records(self) -> None:
        """Leave what a replica leaves that was killed: the system gives up its locks."""
        replica.write_records(self.directory, self.at).close(is_handed_over=False)

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", replica.__name__, str(self.directory), str(self.at), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
async def service(database: Database, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(database, database_url, tmp_path)
    yield service
    service.transport.gatekeeper.stop()


async def test_what_a_killed_replica_had_answered_is_counted_and_not_while_it_lives(service: Service) -> None:
    async with service.replica() as replica:
        assert await service.left.hand_over() == 0
        replica.send_signal(signal.SIGKILL)
        await replica.wait()
    assert await service.left.hand_over() == NUM_RECORDS
    assert await service.num_counted() == NUM_RECORDS
    assert [*service.directory.iterdir()] == []


async def test_what_it_had_handed_over_already_is_not_counted_again(service: Service) -> None:
    await service.usage.add([record(number, at=service.at) for number in range(0, NUM_RECORDS, 2)])
    service.leave_records()
    assert await service.left.hand_over() == NUM_RECORDS
    assert await service.num_counted() == NUM_RECORDS


async def test_two_replicas_that_find_the_same_files_count_them_once(service: Service) -> None:
    service.leave_records()
    service.leave_records()
    other = OrphanedRecords(service.directory, service.transport)
    await asyncio.gather(service.left.hand_over(), other.hand_over())
    assert await service.num_counted() == NUM_RECORDS


async def test_gatekeeper_that_is_killed_meanwhile_gets_them_again(service: Service) -> None:
    service.leave_records()
    dead = service.transport.gatekeeper
    kill(dead)  # It takes records, and writes none of them down.
    handing = asyncio.create_task(service.left.hand_over())
    await eventually(lambda: len(dead._records) == NUM_RECORDS)
    assert not handing.done()
    service.transport.gatekeeper = start(service.state)
    assert await handing == NUM_RECORDS
    assert await service.num_counted() == NUM_RECORDS


async def test_files_stay_while_the_gatekeeper_is_away(service: Service) -> None:
    class Away:
        async def record(self, *_: object) -> tuple[str, int]:
            raise TransportDown("away")

    service.leave_records()
    left = OrphanedRecords(service.directory, Away())  # type: ignore[arg-type]
    left.watch()
    await asyncio.sleep(0.2)
    await left.close()
    service.left.watch()
    await eventually(lambda: not any(service.directory.iterdir()))
    await service.left.close()
    assert await service.num_counted() == NUM_RECORDS


async def test_records_whose_ids_the_database_may_have_forgotten_are_left_out(service: Service) -> None:
    service.at -= 2 * 86_400
    service.leave_records()
    assert await service.left.hand_over() == 0
    assert [*service.directory.iterdir()] == []


async def test_replica_that_ends_while_the_gatekeeper_restarts_waits_until_its_records_are_kept(
    service: Service,
) -> None:
    log = ShippedRequestLog(service.transport, journal=RecordJournal(service.directory), background=False)
    log.record(record(1, at=service.at))
    await asyncio.to_thread(kill, service.transport.gatekeeper)
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0.5)
    assert not closing.done()
    service.transport.gatekeeper = await asyncio.to_thread(start, service.state)
    await closing
    assert await service.num_counted() == 1
    assert [*service.directory.iterdir()] == []


async def test_replica_that_ends_in_peace_leaves_what_the_database_does_not_have_yet(service: Service) -> None:
    journal, patience = RecordJournal(service.directory), replace(USUAL, stop_s=0.1)
    log = ShippedRequestLog(service.transport, journal=journal, patience=patience, background=False)
    log.record(record(1, at=service.at))
    kill(service.transport.gatekeeper)
    await log.close()
    service.transport.gatekeeper = start(service.state)
    assert await service.left.hand_over() == 1
    assert await service.num_counted() == 1
