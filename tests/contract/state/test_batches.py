"""Batches in real databases: many processes at once, and each line once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.models.contract.engine import Usage
from deployments.state.audit_log import Actor, AuditFilter, AuditLog
from deployments.state.batches import store as batches_module
from deployments.state.batches.ledger import BatchState, Fenced, Outcome, Tokens
from deployments.state.batches.rows import Batch, Entry, NewBatch, Segment
from deployments.state.batches.store import BatchNotFound, BatchStore, StatusFilter, TooManyBatches
from deployments.state.batches.work import BatchWork, TooManyTokens
from deployments.state.database.connection import Database, connect
from deployments.state.database.tables.content import batch_segments, batches
from deployments.state.encryption.vault import Vault
from deployments.state.files.content import NewFile
from deployments.state.files.store import FileStore
from deployments.state.usage.reading import UsageFilter, UsageReader
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import UsageStore
from serve_app.telemetry.trace import RequestTrace, record_of
from tests.databases import more_on_postgresql
from tests.twins.gatekeeper import TestClock
from tests.twins.keys import principal_of_key
from tests.twins.objects import MemoryObjects

PRINCIPAL = principal_of_key("key-1", account="acct", operations=["chat"], models=["demo/*"])
MASTER = b"m" * 32


class Desk:
    """One process with the batches of a database. `clock` is the wall's, and may jump; `uptime` only goes on."""

    def __init__(self, database: Database, clock: TestClock, uptime: TestClock) -> None:
        self.clock = clock
        self.uptime = uptime
        self.store = BatchStore(database, Vault(database, MASTER), clock=clock)
        self.work = BatchWork(self.store, uptime)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.uptime.advance(seconds)

    async def create(self, account: str = "acct", **more) -> Batch:
        principal = replace(PRINCIPAL, account=account)
        return await self.store.create(NewBatch(principal, "file-1", "/v1/chat/completions", "24h", 86_400.0, **more))

    async def records(self) -> list[RequestRecord]:
        found = await UsageStore(self.store.database).last_requests("key-1")
        return sorted(found, key=lambda record: record.request_id)

    async def claimed(self, account: str = "acct") -> Batch:
        await self.create(account)
        batch = await self.work.claim(10.0)
        assert batch is not None
        return batch

    async def begun(self, num_total: int, account: str = "acct", max_tokens: int | None = None) -> Batch:
        batch = await self.claimed(account)
        await self.work.begin(batch, batch.state.epoch, num_total, 100, max_tokens)
        return batch


@pytest.fixture
async def desks(database: Database, database_url: str) -> AsyncIterator[list[Desk]]:
    """Three processes over one database."""
    clock, uptime = TestClock(), TestClock(0.0)
    others = [await connect(database_url) for _ in range(2)]
    yield [Desk(each, clock, uptime) for each in (database, *others)]
    for other in others:
        await other.close()


def segment(name: str, *lines: int, tokens: Tokens = Tokens(3, 2, 1)) -> Segment:  # noqa: B008
    entries = [Entry(line, 10 * place, 10, line % 2 == 1) for place, line in enumerate(lines)]
    outcomes = [Outcome(line, is_failed=line % 2 == 1, tokens=tokens, model="demo/chat") for line in lines]
    records = [
        record_of(
            RequestTrace(
                f"req_{line}",
                "POST",
                5.0,
                1.0,
                principal=PRINCIPAL,
                model="demo/chat",
                status=500 if line % 2 else 200,
                usage=Usage(tokens.prompt, tokens.completion, tokens.cached),
                batch_id="batch_x",
            ),
            route="/v1/chat/completions",
            ended=1.5,
        )
        for line in lines
    ]
    return Segment(name, f"segments/{name}", 100, b"wrapped", entries, outcomes, records)


async def test_a_batch_is_kept_as_it_was_created(desks: list[Desk]) -> None:
    one, other = desks[:2]
    batch = await one.create(metadata={"a": "Kanarienvogel"}, output_expires_after_s=3600)
    assert await other.store.find("acct", batch.batch_id) == batch
    assert batch.metadata == {"a": "Kanarienvogel"}
    assert batch.principal == PRINCIPAL
    assert batch.state.expires_at == batch.state.created_at + 86_400
    async with one.store.database.read() as connection:
        assert "Kanarienvogel" not in repr((await connection.execute(select(batches))).all())
    for account, batch_id in (("other", batch.batch_id), ("acct", "batch_x"), ("acct", "nul\0")):
        with pytest.raises(BatchNotFound):
            await one.store.find(account, batch_id)
        with pytest.raises(BatchNotFound):
            await one.store.cancel(account, batch_id)


async def test_an_account_has_ten_unfinished_batches_at_most_however_they_come(desks: list[Desk]) -> None:
    created = await asyncio.gather(*(desks[n % 3].create() for n in range(14)), return_exceptions=True)
    assert sum(isinstance(one, Batch) for one in created) == 10
    assert sum(isinstance(one, TooManyBatches) for one in created) == 4
    await desks[0].create(account="other")


async def test_each_batch_is_claimed_by_one(desks: list[Desk]) -> None:
    ids = {(await desks[0].create()).batch_id for _ in range(6)}
    claimed = await asyncio.gather(*(desks[n % 3].work.claim(10.0) for n in range(12)))
    found = [batch.batch_id for batch in claimed if batch is not None]
    assert len(found) == len(set(found))
    rest = [batch.batch_id for _ in range(6) if (batch := await desks[0].work.claim(10.0)) is not None]
    assert sorted([*found, *rest]) == sorted(ids)
    assert await desks[1].work.claim(10.0) is None


async def test_accounts_take_turns(desks: list[Desk]) -> None:
    desk = desks[0]
    for account in ("busy", "busy", "busy", "quiet"):
        await desk.create(account=account)
        desk.clock.advance(1)
    claimed: list[Batch] = []
    while (batch := await desk.work.claim(100.0, claimed)) is not None:
        claimed.append(batch)
    assert [batch.account for batch in claimed] == ["busy", "quiet", "busy", "busy"]


async def test_a_paused_batch_is_claimed_by_nobody_until_it_is_resumed_or_its_time_is_over(desks: list[Desk]) -> None:
    here, there = desks[:2]
    operator = Actor("api_key", "key_admin")
    resumed, over, cancelled = [(await here.create()).batch_id for _ in range(3)]
    for batch_id in (resumed, over, cancelled):
        assert (await here.store.pause(batch_id, operator)).state.is_paused
    assert await there.work.claim(10.0) is None
    here.pass_time(1.0)
    assert not (await there.store.resume(resumed, operator)).state.is_paused
    await there.store.resume(resumed, operator)
    await there.store.cancel("acct", cancelled)
    claimed = [await here.work.claim(10.0) for _ in range(3)]
    assert [one and one.batch_id for one in claimed] == [resumed, cancelled, None]
    here.pass_time(86_400.0)
    found = await there.work.claim(10.0, [batch for batch in claimed if batch is not None])
    assert found is not None
    assert (found.batch_id, found.state.is_over) == (over, True)
    log, _ = await AuditLog(here.store.database).page(AuditFilter(targets=(resumed,)), 10)
    assert [(entry.event, entry.actor, entry.account) for entry in log] == [
        ("batch.resumed", operator, "acct"),
        ("batch.paused", operator, "acct"),
    ]
    with pytest.raises(BatchNotFound):
        await here.store.pause("batch_x", operator)


async def test_a_claim_that_ran_out_fences_its_holder(desks: list[Desk]) -> None:
    slow, quick = desks[:2]
    batch = await slow.begun(4)
    await slow.work.commit(batch.batch_id, 1, segment("a", 0))
    slow.clock.advance(11)
    taken = await quick.work.claim(10.0)
    assert taken is not None
    assert (taken.batch_id, taken.state.epoch, taken.state.missing()) == (batch.batch_id, 2, [1, 2, 3])
    attempts = [
        lambda: slow.work.commit(batch.batch_id, 1, segment("b", 1)),
        lambda: slow.work.renew(batch.batch_id, 1, 10.0, 0.0),
        lambda: slow.work.seal(batch.batch_id, 1),
        lambda: slow.work.finish(batch.batch_id, 1, None, None, input_kept_s=None),
        lambda: slow.work.release(batch.batch_id, 1),
    ]
    for attempt in attempts:
        with pytest.raises(Fenced):
            await attempt()
    assert [stored.segment_id for stored in await quick.work.segments(batch.batch_id)] == ["a"]


@pytest.mark.parametrize("jump_s", [3600.0, 12.0])
async def test_a_claim_made_by_a_clock_that_was_ahead_ends_with_its_holder(desks: list[Desk], jump_s: float) -> None:
    gone, left = desks[:2]
    gone.clock.advance(jump_s)
    batch = await gone.begun(4)
    gone.clock.advance(-jump_s)
    taken, waited_s = None, 0.0
    while taken is None:
        assert waited_s < 2 * 10.0 + 2
        taken = await left.work.claim(10.0)
        left.pass_time(1.0)
        waited_s += 1.0
    assert waited_s > 10.0
    assert (taken.batch_id, taken.state.epoch) == (batch.batch_id, 2)
    with pytest.raises(Fenced):
        await gone.work.commit(batch.batch_id, 1, segment("a", 0))


async def test_a_claim_made_by_a_clock_that_is_ahead_stays_while_it_is_renewed(desks: list[Desk]) -> None:
    held, other = desks[:2]
    held.clock.advance(3600.0)
    batch = await held.begun(4)
    held.clock.advance(-3600.0)
    for _ in range(20):
        assert await other.work.claim(10.0) is None
        other.pass_time(3.0)
        held.clock.advance(3600.0)
        await held.work.renew(batch.batch_id, 1, 10.0, 0.0)
        held.clock.advance(-3600.0)
    assert (await other.work.look(batch.batch_id)).epoch == 1


async def test_a_clock_that_jumps_ahead_takes_no_batch_from_who_runs_it(desks: list[Desk]) -> None:
    desk = desks[0]
    batch = await desk.begun(4)
    desk.clock.advance(3600.0)
    assert await desk.work.claim(10.0, [batch]) is None
    state, accepted = await desk.work.commit(batch.batch_id, 1, segment("a", 0))
    assert (state.epoch, accepted) == (1, {0})


async def test_outcomes_that_come_at_once_count_once(desks: list[Desk]) -> None:
    batch = await desks[0].begun(40)
    work = [desks[n % 3].work.commit(batch.batch_id, 1, segment(f"s{n}", *range(n, min(n + 5, 40)))) for n in range(40)]
    accepted = await asyncio.gather(*work)
    assert sum(len(lines) for _, lines in accepted) == 40
    state = await desks[1].work.look(batch.batch_id)
    assert (state.num_completed, state.num_failed, state.missing()) == (20, 20, [])
    assert state.tokens == Tokens(120, 80, 40)
    entries = [entry for stored in await desks[2].work.segments(batch.batch_id) for entry in stored.entries]
    assert sorted(entry.line for entry in entries) == list(range(40))
    (row,) = await UsageReader(desks[0].store.database).totals("1d", 0, 1e11, where=UsageFilter(is_batch=True))
    assert (row.num_requests, row.num_errors, row.prompt_tokens) == (40, 20, 120)


async def test_a_commit_whose_answer_was_lost_may_be_repeated(desks: list[Desk]) -> None:
    batch = await desks[0].begun(3)
    first = await desks[0].work.commit(batch.batch_id, 1, segment("a", 0, 2))
    again = await desks[0].work.commit(batch.batch_id, 1, segment("a", 0, 2))
    assert (first[1], again[1]) == ({0, 2}, set())
    assert first[0] == again[0]
    assert [one.request_id for one in await desks[1].records()] == ["req_0", "req_2"]


async def test_lines_stand_in_the_request_log_once_with_their_batch(desks: list[Desk]) -> None:
    batch = await desks[0].begun(4)
    await desks[0].work.commit(batch.batch_id, 1, segment("a", 0, 1))
    await desks[0].work.commit(batch.batch_id, 1, segment("b", 1, 2))
    records = await desks[1].records()
    assert [one.request_id for one in records] == ["req_0", "req_1", "req_2"]
    assert {one.batch_id for one in records} == {batch.batch_id}
    assert {(one.route, one.total_s) for one in records} == {("/v1/chat/completions", 0.5)}


async def test_the_end_of_a_batch_leaves_no_segments(desks: list[Desk]) -> None:
    desk = desks[0]
    batch = await desk.begun(1)
    await desk.work.commit(batch.batch_id, 1, segment("a", 0))
    assert await desk.work.known_segments(["segments/a", "segments/b"]) == {"segments/a"}
    await desk.work.seal(batch.batch_id, 1)
    keys = await desk.work.finish(batch.batch_id, 1, None, None, input_kept_s=86_400.0)
    assert keys == ["segments/a"]
    async with desk.store.database.read() as connection:
        assert (await connection.execute(select(batch_segments))).all() == []
    assert (await desk.store.find("acct", batch.batch_id)).state.status == "completed"
    assert await desk.work.claim(10.0) is None


async def test_an_input_is_kept_for_a_batch_that_is_created_while_another_ends(
    desks: list[Desk], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileStore(database, MemoryObjects(), Vault(database, MASTER), desks[0].clock)
    async with files.create(NewFile("acct", "key-1", "file-1")) as writer:
        await writer.write(b"{}")
    now = desks[0].clock()
    await files.record(writer.row(purpose="batch", filename="in.jsonl", created_at=now, expires_at=now + 3600))
    ending = await desks[0].begun(1)
    await desks[0].work.commit(ending.batch_id, 1, segment("a", 0))
    await desks[0].work.seal(ending.batch_id, 1)
    has_locked, may_go_on, lock = asyncio.Event(), asyncio.Event(), batches_module._lock_input

    async def lock_and_wait(connection: AsyncConnection, file_id: str, account: str) -> None:
        await lock(connection, file_id, account)
        has_locked.set()
        await may_go_on.wait()

    monkeypatch.setattr(batches_module, "_lock_input", lock_and_wait)
    creating = asyncio.create_task(desks[1].create())
    await has_locked.wait()
    finishing = asyncio.create_task(desks[0].work.finish(ending.batch_id, 1, None, None, input_kept_s=86_400.0))
    await asyncio.sleep(0.3)
    may_go_on.set()
    await creating
    assert await finishing == ["segments/a"]
    assert (await files.find("acct", "file-1")).num_bytes == 2


async def test_tokens_that_wait_are_counted_by_account_until_their_batch_ends(desks: list[Desk]) -> None:
    desk = desks[0]
    batch = await desk.begun(1)
    await desk.work.begin(batch, 1, 1, 100, 100)  # Again, as when the answer was lost.
    await desk.begun(1, account="other", max_tokens=100)
    with pytest.raises(TooManyTokens):
        await desk.begun(1, max_tokens=199)
    await desk.begun(1, max_tokens=200)
    await desk.work.commit(batch.batch_id, 1, segment("a", 0))
    await desk.work.seal(batch.batch_id, 1)
    await desk.work.finish(batch.batch_id, 1, None, None, input_kept_s=None)
    await desk.begun(1, max_tokens=200)


async def test_batches_that_are_validated_side_by_side_hold_no_more_tokens_than_they_may(desks: list[Desk]) -> None:
    claimed = [await desks[0].claimed() for _ in range(6)]
    beginning = (desks[n % 3].work.begin(batch, 1, 1, 100, 200) for n, batch in enumerate(claimed))
    began = await asyncio.gather(*beginning, return_exceptions=True)
    assert sum(isinstance(one, BatchState) for one in began) == 2
    assert sum(isinstance(one, TooManyTokens) for one in began) == 4


@more_on_postgresql
async def test_fifty_thousand_lines_fit_into_a_row(desks: list[Desk]) -> None:
    desk = desks[0]
    batch = await desk.begun(50_000)
    for start in range(0, 50_000, 5000):
        await desk.work.commit(batch.batch_id, 1, segment(f"s{start}", *range(start, start + 5000)))
    state = await desk.work.look(batch.batch_id)
    assert state.is_complete
    assert len(await desk.work.segments(batch.batch_id)) == 10


async def test_batches_are_listed_by_status_and_a_paused_one_has_that_alone(desks: list[Desk]) -> None:
    store, operator = desks[0].store, Actor("api_key", "key_ops")
    paused, waiting, cancelled = [(await desks[0].create(account)).batch_id for account in ("acct", "other", "acct")]
    await store.pause(paused, operator)
    await store.pause(cancelled, operator)
    await store.cancel_any(cancelled, operator)

    async def found(account: str | None, status: StatusFilter | None, after: str | None = None) -> list[str]:
        return [one.batch_id for one in (await store.list_batches(account, 10, after, status))[0]]

    assert await found(None, "paused") == [paused]
    assert await found(None, "validating") == [waiting]
    assert await found(None, "cancelling") == [cancelled]
    assert await found("acct", "validating") == []
    assert set(await found(None, None)) == {paused, waiting, cancelled}
    # A page goes on after a batch whose status has changed since.
    assert await found(None, "completed", after=paused) == []
    assert (await store.find(None, waiting)).account == "other"
    with pytest.raises(BatchNotFound):
        await store.find(None, "batch_none")
