"""Says what is wrong with a history of calls over two regions. Pure, as `tests.tools.drills.judge`, on which it stands.

A call is one of the SDK's: what it repeats is part of it. A request that was repeated may have been charged twice, once
for each answer that was made; more records than requests, or two of one request, are a fault.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deployments.state.usage.record import RequestRecord
from tests.tools.drills.judge import Bounds, Charged, Fault, Wrong, has_failed, judge_exchange
from tests.tools.drills.regions.calls import Call, Turn
from tests.tools.drills.regions.rates import Admitted, busiest_window

NEEDS_PRIMARY = frozenset({"turn"})
"""What cannot go on without the database's primary."""
LATE_S = 5.0
"""A call that waits longer counts as lost in the year's arithmetic."""


@dataclass(frozen=True)
class Kept:
    """What is found in each region after a round of what was acknowledged in it.

    `turns` has, by region, the text of each stored turn that is found, and the id of the one before it.
    """

    turns: Mapping[str, Mapping[str, tuple[str, str | None]]] = field(default_factory=dict)
    problems: Sequence[str] = ()
    """What else is not as it was acknowledged: a file, a revoked key, a limit."""


def judge_calls(
    history: Sequence[Call],
    answers: Mapping[str, Mapping[str, str]],
    charged: Charged,
    may_fail: Callable[[Call], bool],
) -> list[Fault]:
    """Return every fault of a history; `answers` has the parts of the answer to each prompt."""
    bounds = Bounds(lambda one: isinstance(one, Call) and may_fail(one))
    faults = [fault for call in history for fault in judge_exchange(call, answers[call.prompt], bounds)]
    # A turn that breaks off says so in the words of the responses interface.
    faults = [one for one in faults if one.wrong not in (Wrong.UNCLEAR_ERROR,) or not _is_turn(history, one)]
    return faults + list(_judge_charges(history, charged))


def judge_kept(turns: Sequence[Turn], kept: Kept) -> list[Fault]:
    """Return which acknowledged turns are not found, or not as they were, and what else is missing."""
    faults = [Fault(Wrong.LOST, None, problem) for problem in kept.problems]
    for region, found in kept.turns.items():
        for turn in turns:
            stored = found.get(turn.response_id)
            if stored is None:
                faults.append(Fault(Wrong.LOST, None, f"turn {turn.response_id} is not found in {region}"))
            elif stored != (turn.text, turn.previous_id):
                faults.append(Fault(Wrong.WRONG_TEXT, None, f"turn {turn.response_id} is another in {region}"))
    return faults


def judge_limit(admitted: Sequence[Admitted], per_minute: int, share: float) -> list[Fault]:
    """Return whether a minute had more than its limit, or none had so large a share of it."""
    most = len(busiest_window(admitted))
    if most > per_minute:
        return [Fault(Wrong.LIMIT, None, f"{most} requests in a minute of {per_minute}")]
    if most < share * per_minute:
        return [Fault(Wrong.LIMIT_UNUSED, None, f"{most} requests at most in a minute of {per_minute}")]
    return []


def _is_turn(history: Sequence[Call], fault: Fault) -> bool:
    return fault.number is not None and history[fault.number].kind == "turn"


def _judge_charges(history: Sequence[Call], charged: Charged) -> Iterable[Fault]:
    records: dict[str, list[RequestRecord]] = {}
    for record in charged.records:
        if record.model is None:  # Of the key's other requests, such as those for files.
            continue
        records.setdefault(record.request_id, []).append(record)
    for request_id, group in records.items():
        if len(group) > 1:
            yield Fault(Wrong.CHARGED_TWICE, None, f"{len(group)} records of {request_id}")
    named = {call.request_id for call in history if not has_failed(call)}
    for call in history:
        if has_failed(call) or call.request_id is None:
            continue
        found = records.get(call.request_id)
        if not found:
            yield Fault(Wrong.NOT_CHARGED, call.number, f"no record of {call.request_id}")
        elif (found[0].prompt_tokens, found[0].completion_tokens) != (call.prompt_tokens, call.completion_tokens):
            detail = f"{found[0].prompt_tokens}, {found[0].completion_tokens} tokens recorded"
            yield Fault(Wrong.WRONG_CHARGE, call.number, detail)
    strangers = records.keys() - named
    unanswered = sum(call.attempts - (not has_failed(call)) for call in history)
    if len(strangers) > unanswered:
        detail = f"{len(strangers)} records of {unanswered} requests without a whole answer"
        yield Fault(Wrong.CHARGED_TWICE, None, detail)


def count_failed(history: Sequence[Call]) -> Counter[str]:
    """Return how many calls of each kind failed."""
    return Counter(call.kind for call in history if has_failed(call))


def longest_wait_s(history: Sequence[Call], at: float, share: float, kinds: frozenset[str]) -> float | None:
    """Return the share's quantile of how long calls that began after the harm waited; None where there was none."""
    waits = sorted(
        call.wait_s for call in history if call.kind in kinds and call.started >= at and call.wait_s is not None
    )
    return waits[min(len(waits) - 1, int(len(waits) * share))] if waits else None


def served_lost_s(history: Sequence[Call], num_clients: int) -> float:
    """Return for how many seconds chat and embeddings were as good as away, the mean over all clients.

    A client asks for nothing else while it waits, so each call that failed or was late counts with its time.
    """
    ended = max((call.ended or call.started for call in history), default=0.0)
    lost = [call for call in history if call.kind not in NEEDS_PRIMARY and _is_lost(call)]
    return sum(call.wait_s or (call.ended or ended) - call.started for call in lost) / num_clients


def stored_lost_s(history: Sequence[Call], every_s: float) -> float:
    """Return for how many seconds turns were as good as away, the mean of both sides.

    A turn begins every `every_s` seconds on each side whatever the others do, so each that failed or was late counts as
    much.
    """
    turns = [call for call in history if call.kind in NEEDS_PRIMARY]
    return sum(map(_is_lost, turns)) * every_s / max(1, len({call.door for call in turns}))


def _is_lost(call: Call) -> bool:
    return call.wait_s is None or call.wait_s > LATE_S
