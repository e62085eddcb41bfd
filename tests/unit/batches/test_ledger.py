"""The steps of a batch: which there are, and which there are not."""

import itertools

import pytest

from deployments.state.batches import ledger
from deployments.state.batches.ledger import BatchState, CannotCancel, CannotPause, Fenced, Outcome, Tokens
from deployments.state.database.tables.content import Status

NEW = BatchState("validating", created_at=0.0, expires_at=100.0)


def running(num_total: int = 3) -> BatchState:
    claimed = ledger.claim(NEW, 1.0, 10.0)
    assert claimed is not None
    return ledger.begin(claimed, 1, 2.0, num_total)


def test_a_batch_that_goes_well() -> None:
    state = running()
    assert (state.status, state.in_progress_at, state.num_total, state.lease_until) == ("in_progress", 2.0, 3, 11.0)
    assert state.missing() == [0, 1, 2]
    state, accepted = ledger.commit(state, 1, [Outcome(2, tokens=Tokens(5, 1)), Outcome(0, is_failed=True)])
    assert [outcome.line for outcome in accepted] == [2, 0]
    assert (state.num_completed, state.num_failed, state.missing()) == (1, 1, [1])
    assert ledger.seal(state, 1, 3.0) == state
    state, _ = ledger.commit(state, 1, [Outcome(1, tokens=Tokens(7, 2, 3, 1))])
    state = ledger.seal(state, 1, 4.0)
    assert (state.status, state.finalizing_at) == ("finalizing", 4.0)
    state = ledger.finish(state, 1, 5.0)
    assert (state.status, state.completed_at) == ("completed", 5.0)
    assert (state.num_completed, state.num_failed, state.tokens) == (2, 1, Tokens(12, 3, 3, 1))


def test_a_claim_lasts_as_long_as_it_is_renewed() -> None:
    first = ledger.claim(NEW, 0.0, 10.0)
    assert first is not None
    assert ledger.claim(first, 9.9, 10.0) is None
    renewed = ledger.renew(first, 1, 9.0, 10.0, 9.0)
    assert ledger.claim(renewed, 18.0, 10.0) is None
    second = ledger.claim(renewed, 19.0, 10.0)
    assert second is not None
    assert second.epoch == 2
    assert ledger.claim(ledger.release(second, 2), 19.1, 10.0) is not None


def test_the_time_of_a_batch_is_what_its_holder_counts_wherever_the_wall_clock_jumps() -> None:
    state = running()
    for now, elapsed_s in ((1e6, 40.0), (-1e6, 99.9)):
        state = ledger.renew(state, 1, now, 10.0, elapsed_s)
        assert ledger.seal(state, 1, now).status == "in_progress"
    assert ledger.renew(state, 1, 0.0, 10.0, 50.0).elapsed_s == 99.9
    state = ledger.renew(state, 1, 0.0, 10.0, 100.0)
    assert ledger.seal(state, 1, 0.0).status == "finalizing"


@pytest.mark.parametrize(
    ("now", "past", "elapsed_s"),
    [
        (60.0, None, 60.0),  # Everything was switched off meanwhile.
        (60.0, 60.0, 60.0),
        (86_460.0, 60.0, 60.0),  # The clock has jumped while the new holder looked on.
        (86_460.0, None, 86_460.0),
        (-500.0, 60.0, 20.0),
        (60.0, -500.0, 20.0),
    ],
)
def test_between_two_claims_the_wall_clock_counts_without_the_jumps_that_were_seen(
    now: float, past: float | None, elapsed_s: float
) -> None:
    held = ledger.renew(running(), 1, 20.0, 10.0, 20.0)
    taken = ledger.claim(held, now, 10.0, is_abandoned=True, past=past)
    assert taken is not None
    assert (taken.elapsed_s, taken.counted_at) == (elapsed_s, now)
    assert taken.is_over == (elapsed_s > 100)


def test_the_time_before_the_first_claim_counts() -> None:
    claimed = ledger.claim(NEW, 101.0, 10.0)
    assert claimed is not None
    assert ledger.seal(ledger.begin(claimed, 1, 101.0, 3), 1, 101.0).status == "finalizing"


def test_whoever_lost_the_claim_can_do_nothing() -> None:
    state = ledger.claim(running(), 100.0, 10.0)
    assert state is not None
    steps = [
        lambda: ledger.renew(state, 1, 0.0, 1.0, 0.0),
        lambda: ledger.release(state, 1),
        lambda: ledger.begin(state, 1, 0.0, 5),
        lambda: ledger.fail(state, 1, 0.0),
        lambda: ledger.commit(state, 1, [Outcome(0)]),
        lambda: ledger.seal(state, 1, 0.0),
        lambda: ledger.lose(state, 1, 0.0),
        lambda: ledger.finish(state, 1, 0.0),
    ]
    for step in steps:
        with pytest.raises(Fenced):
            step()


def test_a_line_is_done_once() -> None:
    state, _ = ledger.commit(running(), 1, [Outcome(0, tokens=Tokens(1, 1))])
    again, accepted = ledger.commit(state, 1, [Outcome(0, is_failed=True, tokens=Tokens(9, 9)), Outcome(99)])
    assert accepted == []
    assert again == state
    state, accepted = ledger.commit(running(), 1, [Outcome(1), Outcome(1)])
    assert len(accepted) == 1


def test_nothing_is_accepted_once_the_outcomes_are_sealed() -> None:
    state = ledger.seal(ledger.renew(running(), 1, 100.0, 10.0, 100.0), 1, 100.0)
    assert state.status == "finalizing"
    with pytest.raises(Fenced):
        ledger.commit(state, 1, [Outcome(0)])
    ended = ledger.finish(state, 1, 101.0)
    assert (ended.status, ended.num_completed, ended.num_failed) == ("expired", 0, 3)


def test_a_cancelled_batch_keeps_what_is_done() -> None:
    state = ledger.request_cancel(running(), 5.0)
    assert (state.status, state.cancelling_at) == ("cancelling", 5.0)
    state, accepted = ledger.commit(state, 1, [Outcome(1)])
    assert accepted
    state = ledger.seal(state, 1, 6.0)
    with pytest.raises(Fenced):
        ledger.commit(state, 1, [Outcome(2)])
    state = ledger.finish(state, 1, 7.0)
    assert (state.status, state.cancelled_at, state.num_completed, state.num_failed) == ("cancelled", 7.0, 1, 2)
    assert ledger.request_cancel(state, 9.0) == state


def test_a_batch_cancelled_before_it_was_validated_never_runs() -> None:
    claimed = ledger.claim(ledger.request_cancel(NEW, 0.5), 1.0, 10.0)
    assert claimed is not None
    assert ledger.fail(claimed, 1, 2.0) == claimed
    state = ledger.begin(claimed, 1, 2.0, 4)
    assert (state.status, state.num_total, state.in_progress_at) == ("cancelling", 4, None)
    ended = ledger.finish(ledger.seal(state, 1, 3.0), 1, 4.0)
    assert (ended.status, ended.num_failed) == ("cancelled", 4)


def test_a_paused_batch_is_not_claimed_until_it_is_resumed_cancelled_over_or_done() -> None:
    held = running()
    state = ledger.pause(held, 3.0)
    assert (state.status, state.paused_at, state.is_paused) == ("in_progress", 3.0, True)
    assert ledger.pause(state, 4.0) == state
    left = ledger.release(state, 1)
    assert ledger.claim(left, 50.0, 10.0) is None
    assert ledger.claim(ledger.pause(NEW, 0.5), 1.0, 10.0) is None
    assert ledger.claim(ledger.resume(left), 50.0, 10.0) is not None
    assert ledger.claim(ledger.request_cancel(left, 50.0), 50.0, 10.0) is not None
    over = ledger.claim(left, 100.0, 10.0)
    assert over is not None
    assert ledger.seal(over, 2, 100.0).status == "finalizing"
    done, accepted = ledger.commit(state, 1, [Outcome(line) for line in range(3)])
    assert len(accepted) == 3
    claimed = ledger.claim(ledger.release(done, 1), 50.0, 10.0)
    assert claimed is not None
    assert ledger.finish(ledger.seal(claimed, 2, 51.0), 2, 52.0).status == "completed"


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "cancelled", "cancelling", "finalizing"])
def test_what_has_no_lines_left_to_run_is_not_paused(status: Status) -> None:
    with pytest.raises(CannotPause) as refused:
        ledger.pause(BatchState(status, 0.0, 1.0), 5.0)
    assert refused.value.status == status


def test_what_was_found_invalid_has_failed() -> None:
    claimed = ledger.claim(NEW, 1.0, 10.0)
    assert claimed is not None
    failed = ledger.fail(claimed, 1, 2.0)
    assert (failed.status, failed.failed_at) == ("failed", 2.0)
    assert ledger.claim(failed, 1e9, 10.0) is None
    assert ledger.begin(failed, 1, 3.0, 5) == failed


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "finalizing"])
def test_what_is_too_far_cannot_be_cancelled(status: Status) -> None:
    with pytest.raises(CannotCancel) as refused:
        ledger.request_cancel(BatchState(status, 0.0, 1.0), 5.0)
    assert refused.value.status == status


def test_a_batch_whose_input_is_lost_fails_and_keeps_what_is_done() -> None:
    state, _ = ledger.commit(running(), 1, [Outcome(0, tokens=Tokens(5, 1)), Outcome(1, is_failed=True)])
    state = ledger.lose(state, 1, 5.0)
    assert (state.status, state.finalizing_at) == ("finalizing", 5.0)
    assert ledger.lose(state, 1, 6.0) == state
    state = ledger.finish(state, 1, 7.0, is_lost=True)
    assert (state.status, state.failed_at, state.num_completed, state.num_failed) == ("failed", 7.0, 1, 2)
    assert state.tokens == Tokens(5, 1)
    assert ledger.lose(state, 1, 8.0) == state


def test_a_cancelled_batch_whose_input_is_lost_is_cancelled() -> None:
    state = ledger.lose(ledger.request_cancel(running(), 5.0), 1, 6.0)
    assert (state.status, state.finalizing_at) == ("cancelling", 6.0)
    assert ledger.finish(state, 1, 7.0, is_lost=True).status == "cancelled"


def test_lines_whose_answers_are_lost_have_failed() -> None:
    state, _ = ledger.commit(running(), 1, [Outcome(0), Outcome(1), Outcome(2, is_failed=True)])
    state = ledger.finish(ledger.seal(state, 1, 5.0), 1, 6.0, num_lost=1)
    assert (state.status, state.num_completed, state.num_failed) == ("completed", 1, 2)


def test_nothing_ends_without_being_sealed() -> None:
    with pytest.raises(Fenced):
        ledger.finish(running(), 1, 5.0)


def test_no_step_leads_backwards() -> None:
    rank = {"validating": 0, "in_progress": 1, "finalizing": 2, "cancelling": 2}
    steps = [
        lambda s: ledger.begin(s, s.epoch, 50.0, 3),
        lambda s: ledger.fail(s, s.epoch, 50.0),
        lambda s: ledger.commit(s, s.epoch, [Outcome(0), Outcome(1), Outcome(2)])[0],
        lambda s: ledger.seal(s, s.epoch, 50.0),
        lambda s: ledger.seal(ledger.renew(s, s.epoch, 200.0, 10.0, 200.0), s.epoch, 200.0),
        lambda s: ledger.lose(s, s.epoch, 50.0),
        lambda s: ledger.finish(s, s.epoch, 50.0),
        lambda s: ledger.request_cancel(s, 50.0),
        lambda s: ledger.pause(s, 50.0) if s.status == "in_progress" else ledger.resume(s),
        lambda s: ledger.claim(s, 1e6, 1.0) or s,
    ]
    for path in itertools.product(steps, repeat=5):
        state = NEW
        for step in path:
            try:
                after = step(state)
            except (Fenced, CannotCancel):
                continue
            assert rank.get(after.status, 3) >= rank.get(state.status, 3)
            assert not state.has_ended or after.status == state.status
            state = after
