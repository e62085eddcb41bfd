"""Any schedule of coordinators, kills, pauses and clocks that jump ends in one output for each line, none too early.

The database is one `BatchState` with its segments, changed in whole steps. Coordinators keep everything else in their
heads and lose it when they are killed. Hypothesis decides who does what next.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.state.batches import ledger
from deployments.state.batches.ledger import BatchState, CannotCancel, CannotPause, Fenced, Outcome, Tokens
from deployments.state.database.queues import LeaseWatch
from deployments.state.database.tables.content import ENDED
from tests.twins.gatekeeper import TestClock

LEASE_S = 10.0
NUM_LINES = 12
WINDOW_S = 500.0
RANK = {"validating": 0, "in_progress": 1, "finalizing": 2, "cancelling": 2}


@dataclass
class Database:
    """What survives: the batch, its segments, the account's usage, and the files that count.

    `off_s` is how far the clock was off that counted last, `unseen_s` the sum of the jumps that nobody saw who is left.
    """

    state: BatchState = field(default_factory=lambda: BatchState("validating", 0.0, WINDOW_S))
    segments: list[list[tuple[int, str]]] = field(default_factory=list)
    billed: Tokens = Tokens()  # noqa: RUF009
    output: list[str] | None = None
    history: list[BatchState] = field(default_factory=list)
    off_s: float = 0.0
    unseen_s: float = 0.0

    def write(self, state: BatchState) -> None:
        self.state = state
        self.history.append(state)


@dataclass
class Coordinator:
    """One process: what it believes, how far its clock is off and was when it started, and when it claimed what."""

    name: str
    skew_s: float = 0.0
    start_skew_s: float = 0.0
    claimed: tuple[float, float] = (0.0, 0.0)
    epoch: int | None = None
    todo: list[int] = field(default_factory=list)
    finished: list[tuple[Outcome, str]] = field(default_factory=list)
    merged: list[str] | None = None
    num_calls: int = 0
    uptime: TestClock = field(default_factory=lambda: TestClock(0.0))
    watch: LeaseWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = LeaseWatch(self.uptime)

    def restart(self) -> None:
        self.start_skew_s = self.skew_s
        self.forget()

    def forget(self) -> None:
        self.epoch, self.todo, self.finished, self.merged = None, [], [], None


def step(one: Coordinator, database: Database, now: float, random: Random) -> None:
    """Have a coordinator do the next thing that it believes due."""
    one.uptime.now = now
    past = now + one.start_skew_s
    now += one.skew_s
    try:
        if one.epoch is None:
            held = database.state
            is_abandoned = one.watch.is_abandoned("batch", (held.epoch, held.lease_until), LEASE_S)
            claimed = ledger.claim(held, now, LEASE_S, is_abandoned=is_abandoned, past=past)
            if claimed is not None:
                database.unseen_s += max(0.0, min(one.skew_s, one.start_skew_s) - database.off_s)
                database.off_s = one.skew_s
                database.write(claimed)
                one.claimed = (claimed.elapsed_s, one.uptime())
                one.epoch, one.todo = claimed.epoch, claimed.missing()
            return
        if database.state.status in ("validating", "cancelling") and not database.state.num_total:
            database.write(ledger.begin(database.state, one.epoch, now, NUM_LINES))
            one.todo = database.state.missing()
            return
        if one.merged is not None:
            finished = ledger.finish(database.state, one.epoch, now)
            database.write(finished)
            database.output = one.merged
            one.forget()
            return
        act(one, database, now, random)
    except Fenced:
        one.forget()


def act(one: Coordinator, database: Database, now: float, random: Random) -> None:
    assert one.epoch is not None
    choice = random.random()
    if one.todo and choice < 0.5:
        line = one.todo.pop(random.randrange(len(one.todo)))
        one.num_calls += 1
        outcome = Outcome(line, is_failed=line % 5 == 0, tokens=Tokens(line + 1, 1))
        one.finished.append((outcome, f"{line} by {one.name} #{one.num_calls}"))
    elif one.finished and choice < 0.8:
        state, accepted = ledger.commit(database.state, one.epoch, [outcome for outcome, _ in one.finished])
        lines = {outcome.line for outcome in accepted}
        database.segments.append([(outcome.line, said) for outcome, said in one.finished if outcome.line in lines])
        for outcome in accepted:
            database.billed = database.billed.plus(outcome.tokens)
        database.write(state)
        one.finished = []
    elif choice < 0.9:
        elapsed_s, at = one.claimed
        database.write(ledger.renew(database.state, one.epoch, now, LEASE_S, elapsed_s + one.uptime() - at))
        if database.state.paused_at is None:
            database.off_s = one.skew_s
    else:
        before = database.state
        sealed = ledger.seal(before, one.epoch, now)
        if sealed.status == "finalizing" and before.status == "in_progress" and not sealed.is_complete:
            assert one.uptime() + database.unseen_s >= WINDOW_S - 1e-6
        database.write(sealed)
        if sealed.finalizing_at is not None:
            said = dict(pair for segment in database.segments for pair in segment)
            one.merged = [said.get(line, f"{line} not done") for line in range(sealed.num_total)]


def check(database: Database) -> None:
    state = database.state
    assert state.status in ENDED
    assert database.output is not None
    assert [int(said.split()[0]) for said in database.output] == list(range(NUM_LINES))
    lines = [line for segment in database.segments for line, _ in segment]
    assert len(lines) == len(set(lines)) == state.num_done
    said = dict(pair for segment in database.segments for pair in segment)
    assert database.output == [said.get(line, f"{line} not done") for line in range(NUM_LINES)]
    assert state.num_completed + state.num_failed == state.num_total == NUM_LINES
    tokens = [Tokens(line + 1, 1) for line in lines]
    assert state.tokens == database.billed == Tokens(sum(t.prompt for t in tokens), len(tokens))
    assert (state.status == "completed") <= state.is_complete
    for before, after in zip(database.history, database.history[1:], strict=False):
        assert RANK.get(after.status, 3) >= RANK.get(before.status, 3)
        assert after.epoch >= before.epoch
        assert after.done | before.done == after.done


EVENTS = ["step", "step", "step", "step", "kill", "skip", "skew", "pause", "cancel", "hold"]
events = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 2)), max_size=200)


@given(events, st.integers(0, 2**32), st.booleans())
@example([("skew", 0), ("step", 0), ("hold", 0)], 0, False)  # The clock that counted last is ahead of all others.
def test_any_schedule_ends_in_one_output_for_each_line(schedule, seed, may_cancel) -> None:
    run(schedule, seed, may_cancel=may_cancel)


def run_many() -> None:
    """Run schedules until one ends wrongly: there is no need to find the shortest."""
    for seed in range(400):
        random = Random(seed)
        schedule = [(random.choice(EVENTS), random.randrange(3)) for _ in range(random.randrange(200))]
        run(schedule, seed, may_cancel=seed % 2 == 0)


def hold(database: Database, now: float) -> None:
    """Pause the batch, or resume it if it is paused, as an operator does."""
    paused_at = database.state.paused_at
    with suppress(CannotPause):
        database.write(ledger.pause(database.state, now) if paused_at is None else ledger.resume(database.state))
        if paused_at is None:
            database.unseen_s += max(0.0, -database.off_s)
            database.off_s = 0.0


def run(schedule: list[tuple[str, int]], seed: int, *, may_cancel: bool) -> None:
    random, database, now = Random(seed), Database(), 0.0
    coordinators = [Coordinator(name) for name in "abc"]
    for event, number in schedule:
        one = coordinators[number]
        now += random.random()
        if event == "step":
            step(one, database, now, random)
        elif event == "kill":
            one.restart()
        elif event == "skip":
            now += LEASE_S
        elif event == "skew":
            one.skew_s = random.choice([-100.0, 0.0, 100.0, 86_400.0])
        elif event == "pause":
            others = [each for each in coordinators if each is not one]
            for _ in range(10):
                now += LEASE_S / 2
                step(random.choice(others), database, now, random)
        elif event == "hold":
            hold(database, now)
        elif may_cancel:
            with suppress(CannotCancel):
                database.write(ledger.request_cancel(database.state, now))
    survivor, epoch, left_at = Coordinator("z"), database.state.epoch, now
    for _ in range(3000):
        if database.state.has_ended:
            break
        now += 0.5
        assert database.state.epoch > epoch or now <= left_at + LEASE_S + 1 or database.state.paused_at is not None
        step(survivor, database, now, random)
    check(database)


def test_the_checker_finds_a_line_that_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ledger.commit

    def forgetful(state: BatchState, epoch: int, outcomes):
        after, accepted = honest(state, epoch, outcomes)
        return replace(after, done=after.done & ~1), accepted

    monkeypatch.setattr(ledger, "commit", forgetful)
    with pytest.raises(AssertionError):
        run_many()


def test_the_checker_finds_a_batch_that_a_jump_of_the_clock_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ledger.seal

    def hasty(state: BatchState, epoch: int, now: float) -> BatchState:
        return honest(replace(state, elapsed_s=max(0.0, now - state.created_at)), epoch, now)

    monkeypatch.setattr(ledger, "seal", hasty)
    with pytest.raises(AssertionError):
        run_many()


def test_the_checker_finds_a_claim_that_fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_check", lambda state, epoch: None)

    def unsealed(state: BatchState, epoch: int, now: float) -> BatchState:
        return replace(state, status="completed", completed_at=now)

    monkeypatch.setattr(ledger, "finish", unsealed)
    with pytest.raises(AssertionError):
        run_many()
