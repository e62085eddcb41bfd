"""The state machine of a batch: functions from one state to the next. Pure: no clock, no storage.

    validating ─┬─> in_progress ─┬─> finalizing ─┬─> completed
                │                │               ├─> expired     (some lines were not done in time)
                ├─> failed       │               └─> failed      (its input was lost)
                └────────────────┴─> cancelling ───> cancelled

A coordinator works on a batch under a claim. `epoch` counts the claims, and only the holder of the newest may change
the batch: a coordinator that was paused or away for too long, or whose clock jumped, can do no harm. A line is done
when its outcome is committed; a second outcome of a line is not accepted. `finalizing_at` seals the outcomes: from then
on none is accepted, and the files can be written.

A batch's time is not read from a wall clock, which may jump, but added up in `elapsed_s`: during a claim by its
holder's uptime, and between two claims by the wall clock, without the jumps that the new holder has seen. So a clock
that jumps by days ends no batch with a claim, a clock that jumps back keeps no batch alive, and the time counts during
which the whole service was off. A jump counts as elapsed time only if no running process saw it. After a wrong clock, a
batch may run beyond its `expires_at`: that does less harm than to end it too early.

An operator may pause a batch. Its status stays, its time goes on, and no line starts; it is not claimed until it is
resumed, cancelled or over its time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from deployments.state.database.tables.content import ENDED, Status


class Fenced(Exception):
    """Another coordinator has claimed the batch since, so this one stops working on it.

    Every function with an `epoch` raises it if that claim is not the newest.
    """


class _WrongStatus(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(f"The batch is {status}.")
        self.status = status


class CannotCancel(_WrongStatus):
    """A batch with this `status` can no longer be cancelled."""


class CannotPause(_WrongStatus):
    """A batch with this `status` has no lines to pause."""


class Tokens(NamedTuple):
    """The tokens of lines; `cached` are part of `prompt`, `reasoning` of `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        """Return the sums."""
        return Tokens(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_TOKENS = Tokens()


class Outcome(NamedTuple):
    """The outcome of one line, counted from 0. `model` is empty if the line named no known model."""

    line: int
    is_failed: bool = False
    tokens: Tokens = NO_TOKENS
    model: str = ""


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of a batch. `done` has bit n set when line n is done. Times are Unix seconds, None if not reached.

    At `counted_at`, `elapsed_s` of the batch's time had passed; it is None before the first claim.
    """

    status: Status
    created_at: float
    expires_at: float
    epoch: int = 0
    lease_until: float = 0.0
    elapsed_s: float = 0.0
    counted_at: float | None = None
    num_total: int = 0
    num_completed: int = 0
    num_failed: int = 0
    tokens: Tokens = NO_TOKENS
    done: int = 0
    in_progress_at: float | None = None
    finalizing_at: float | None = None
    completed_at: float | None = None
    failed_at: float | None = None
    expired_at: float | None = None
    cancelling_at: float | None = None
    cancelled_at: float | None = None
    paused_at: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.status in ENDED

    @property
    def num_done(self) -> int:
        """The number of lines that are done."""
        return self.done.bit_count()

    @property
    def is_complete(self) -> bool:
        """Whether every line is done."""
        return self.num_done == self.num_total

    @property
    def is_over(self) -> bool:
        """Whether the batch has used up its time."""
        return self.elapsed_s >= self.expires_at - self.created_at

    @property
    def is_paused(self) -> bool:
        """Whether lines wait for an operator."""
        has_lines = self.status == "validating" or (self.status == "in_progress" and not self.is_complete)
        return self.paused_at is not None and has_lines and not self.is_over

    def missing(self) -> list[int]:
        """Return the lines that are not done, in order."""
        done = self.done
        return [line for line in range(self.num_total) if not done >> line & 1] if done else list(range(self.num_total))


def claim(
    state: BatchState, now: float, lease_s: float, *, is_abandoned: bool = False, past: float | None = None
) -> BatchState | None:
    """Return the batch under a new claim; None while another claim holds, or if the batch has ended or is paused.

    The claim `is_abandoned` if it was not renewed for its whole length. `past` is the time without the forward jumps of
    the wall clock that the caller has seen.
    """
    if state.has_ended or (state.lease_until > now and not is_abandoned):
        return None
    elapsed_s = _elapsed_until(state, min(now, now if past is None else past))
    state = replace(state, epoch=state.epoch + 1, lease_until=now + lease_s, elapsed_s=elapsed_s, counted_at=now)
    return None if state.is_paused else state


def renew(state: BatchState, epoch: int, now: float, lease_s: float, elapsed_s: float) -> BatchState:
    """Return the batch with its claim renewed; `elapsed_s` is the batch's time as its holder has counted it.

    The `counted_at` of a paused batch stays on the clock of the pause: a holder's clock may be off, and no later claim
    would correct that.
    """
    _check(state, epoch)
    elapsed_s = max(state.elapsed_s, elapsed_s)
    if state.paused_at is not None and state.counted_at is not None:
        counted_at = state.counted_at + elapsed_s - state.elapsed_s
    else:
        counted_at = now
    return replace(state, lease_until=now + lease_s, elapsed_s=elapsed_s, counted_at=counted_at)


def release(state: BatchState, epoch: int) -> BatchState:
    """Return the batch with its claim given up."""
    _check(state, epoch)
    return replace(state, lease_until=0.0)


def begin(state: BatchState, epoch: int, now: float, num_total: int) -> BatchState:
    """Return the batch as valid, with `num_total` lines; if it is being cancelled, only the number changes."""
    _check(state, epoch)
    if state.status == "validating":
        return replace(state, status="in_progress", in_progress_at=now, num_total=num_total)
    return replace(state, num_total=num_total) if state.status == "cancelling" and not state.num_total else state


def fail(state: BatchState, epoch: int, now: float) -> BatchState:
    """Return the batch as invalid; a batch that is being cancelled does not change."""
    _check(state, epoch)
    if state.status == "validating":
        return replace(state, status="failed", failed_at=now)
    return state


def commit(state: BatchState, epoch: int, outcomes: Iterable[Outcome]) -> tuple[BatchState, list[Outcome]]:
    """Return the batch with outcomes added, and the accepted outcomes: one for each line that had none.

    Raises:
        Fenced: the claim is not the newest, or the outcomes are sealed.
    """
    _check(state, epoch)
    if state.finalizing_at is not None or state.status not in ("in_progress", "cancelling"):
        raise Fenced(f"The outcomes are sealed; the batch is {state.status}.")
    done, tokens, accepted = state.done, state.tokens, []
    for outcome in outcomes:
        bit = 1 << outcome.line
        if outcome.line < state.num_total and not done & bit:
            done |= bit
            tokens = tokens.plus(outcome.tokens)
            accepted.append(outcome)
    num_failed = sum(outcome.is_failed for outcome in accepted)
    state = replace(
        state,
        done=done,
        tokens=tokens,
        num_completed=state.num_completed + len(accepted) - num_failed,
        num_failed=state.num_failed + num_failed,
    )
    return state, accepted


def seal(state: BatchState, epoch: int, now: float) -> BatchState:
    """Return the batch with its outcomes sealed if it is complete, over its time or being cancelled; else unchanged."""
    _check(state, epoch)
    if state.finalizing_at is not None or state.has_ended:
        return state
    if state.status == "cancelling":
        return replace(state, finalizing_at=now)
    if state.status == "in_progress" and (state.is_complete or state.is_over):
        return replace(state, status="finalizing", finalizing_at=now)
    return state


def lose(state: BatchState, epoch: int, now: float) -> BatchState:
    """Return the batch with its outcomes sealed, because the input of the other lines is lost."""
    _check(state, epoch)
    if state.finalizing_at is not None or state.status not in ("in_progress", "cancelling"):
        return state
    status: Status = "finalizing" if state.status == "in_progress" else state.status
    return replace(state, status=status, finalizing_at=now)


def finish(state: BatchState, epoch: int, now: float, *, is_lost: bool = False, num_lost: int = 0) -> BatchState:
    """Return the batch in its final state; lines that are not done count as failed.

    `is_lost` means that its input was lost; `num_lost` is the number of completed lines whose answers were lost.

    Raises:
        Fenced: the claim is not the newest, or there is nothing to finish.
    """
    _check(state, epoch)
    if state.finalizing_at is None or state.has_ended:
        raise Fenced(f"The batch is {state.status}.")
    num_completed = state.num_completed - num_lost
    state = replace(state, num_completed=num_completed, num_failed=state.num_total - num_completed)
    if state.status == "cancelling":
        return replace(state, status="cancelled", cancelled_at=now)
    if state.is_complete:
        return replace(state, status="completed", completed_at=now)
    if is_lost:
        return replace(state, status="failed", failed_at=now)
    return replace(state, status="expired", expired_at=now)


def request_cancel(state: BatchState, now: float) -> BatchState:
    """Return the batch as being cancelled. This needs no claim.

    Raises:
        CannotCancel: it is being finalized, or has ended in another way.
    """
    if state.status in ("cancelling", "cancelled"):
        return state
    if state.status not in ("validating", "in_progress"):
        raise CannotCancel(state.status)
    return replace(state, status="cancelling", cancelling_at=now)


def pause(state: BatchState, now: float) -> BatchState:
    """Return the batch as paused. This needs no claim.

    Raises:
        CannotPause: it is being finalized or cancelled, or has ended.
    """
    if state.status not in ("validating", "in_progress"):
        raise CannotPause(state.status)
    if state.paused_at is not None:
        return state
    return replace(state, paused_at=now, elapsed_s=_elapsed_until(state, now), counted_at=now)


def resume(state: BatchState) -> BatchState:
    """Return the batch as not paused. This needs no claim."""
    return replace(state, paused_at=None)


def _check(state: BatchState, epoch: int) -> None:
    if state.epoch != epoch:
        raise Fenced(f"The claim {epoch} was followed by {state.epoch}.")


def _elapsed_until(state: BatchState, now: float) -> float:
    """Return the batch's time, with the time since it was counted last."""
    counted_at = state.created_at if state.counted_at is None else state.counted_at
    return state.elapsed_s + max(0.0, now - counted_at)
