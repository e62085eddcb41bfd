"""Says what is wrong with a history of requests. Pure: it takes what clients saw, what they should have seen, what was
charged, and what was done to the service.

Each request must end exactly once, right or with a clear error; its text must be that of an undisturbed run; what was
delivered must be charged once. What may fail is up to the drill: its promise says which requests.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from deployments.state.usage.record import RequestRecord
from tests.tools.drills.exchange import Exchange

ERROR_FIELDS = {"message", "type", "param", "code"}


class Wrong(StrEnum):
    """The kinds of fault."""

    HUNG = "never ended"
    ENDED_TWICE = "ended more than once"
    WRONG_TEXT = "wrong text"
    FAILED = "failed"
    NOT_FOUND = "404 on a route that exists"
    UNCLEAR_ERROR = "an error that is not in OpenAI's shape"
    UNCLEAR_REFUSAL = "a refusal that is not a 503 with retry-after"
    SLOW = "waited too long"
    NOT_CHARGED = "answered and not charged"
    CHARGED_TWICE = "charged more than once"
    WRONG_CHARGE = "charged for other tokens than were delivered"
    NOT_DONE = "the harm could not be done"
    NOT_BACK = "did not come back"
    REPLACED = "replicas were replaced"
    BATCH = "the batch is not exact"
    LOST = "acknowledged and not kept"
    LIMIT = "more was admitted than the limit"
    LIMIT_UNUSED = "much less was admitted than the limit"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong; `number` is the exchange's, None where it is about the whole history."""

    wrong: Wrong
    number: int | None
    detail: str


@dataclass(frozen=True)
class Charged:
    """What the service has written down about a round: the log of its requests, and the tokens by its usage rows."""

    records: Sequence[RequestRecord]
    usage_tokens: tuple[int, int] | None
    """Prompt and completion tokens; None where they are not to be compared."""


@dataclass(frozen=True)
class Bounds:
    """What a drill promises about the requests of a round.

    `may_fail` says whether an exchange may fail; `max_failed` bounds how many may, None being no bound.
    `longest_wait_s` bounds the wait of each kind of exchange, by which no request is excused that may not fail.
    """

    may_fail: Callable[[Exchange], bool] = lambda exchange: False
    max_failed: int | None = None
    longest_wait_s: Mapping[str, float] = field(default_factory=dict)


def judge(
    history: Sequence[Exchange], expected: Mapping[str, Mapping[str, str]], charged: Charged, bounds: Bounds
) -> list[Fault]:
    """Return every fault of a history; `expected` has the parts of the answer to each prompt."""
    faults = [fault for exchange in history for fault in judge_exchange(exchange, expected[exchange.prompt], bounds)]
    excused = [one for one in history if has_failed(one) and bounds.may_fail(one)]
    if bounds.max_failed is not None and len(excused) > bounds.max_failed:
        faults.append(Fault(Wrong.FAILED, None, f"{len(excused)} failed, and {bounds.max_failed} may"))
    return faults + judge_charges(history, charged)


def has_failed(exchange: Exchange) -> bool:
    """Return whether the client did not get a whole answer."""
    return not exchange.is_complete


def answered_ids(history: Iterable[Exchange]) -> set[str]:
    """Return the ids of the requests that were answered as a whole: each must be written down."""
    return {one.request_id for one in history if one.request_id is not None and not has_failed(one)}


def judge_exchange(exchange: Exchange, expected: Mapping[str, str], bounds: Bounds) -> Iterable[Fault]:
    """Yield what is wrong with one exchange."""

    def fault(wrong: Wrong, detail: str) -> Fault:
        return Fault(wrong, exchange.number, detail)

    if exchange.ended is None:
        yield fault(
            Wrong.HUNG, f"{exchange.kind} by {exchange.door}, {sum(map(len, exchange.parts.values()))} characters"
        )
        return
    if repeated := _ends_again(exchange, expected):
        yield fault(Wrong.ENDED_TWICE, repeated)
    if problem := _compare(exchange.parts, expected, exchange.is_complete):
        yield fault(Wrong.WRONG_TEXT, problem)
    if exchange.is_complete:
        allowed = bounds.longest_wait_s.get(exchange.kind)
        if allowed is not None and exchange.longest_wait_s > allowed:
            yield fault(
                Wrong.SLOW,
                f"{_which(exchange)}: {exchange.longest_wait_s:.2f} s; {allowed:.2f} s are promised",
            )
        return
    if exchange.status == 404:
        yield fault(Wrong.NOT_FOUND, str(exchange.error)[:200])
    yield from (fault(wrong, detail) for wrong, detail in _unclear(exchange))
    if not bounds.may_fail(exchange):
        yield fault(Wrong.FAILED, f"{_which(exchange)}: {how_it_failed(exchange)}")


def _which(exchange: Exchange) -> str:
    return f"{exchange.kind} by {exchange.door}, {exchange.started:.1f} to {exchange.ended or 0.0:.1f} s"


def how_it_failed(exchange: Exchange) -> str:
    """Return in a few words what the client met instead of an answer."""
    if exchange.lost is not None:
        return f"{'in the answer' if exchange.status else 'before the answer'}: {exchange.lost}"
    if exchange.error is not None:
        message = exchange.error.get("message") if isinstance(exchange.error, dict) else exchange.error
        return f"{exchange.status}, {'error event' if exchange.status == 200 else 'refused'}: {str(message)[:80]}"
    return f"{exchange.status}: the answer ended without its end"


def _ends_again(exchange: Exchange, expected: Mapping[str, str]) -> str:
    """Return how an answer ended more than once, "" if it did not."""
    finished = sum(end.startswith("finish:") for end in exchange.ends)
    choices = len({place.partition(".")[0] for place in {*exchange.parts, *expected}}) or 1
    if finished > choices:
        return f"{finished} finish reasons for {choices} choices"
    if exchange.ends.count("[DONE]") > 1 or exchange.after_end:
        return f"{exchange.after_end} events after [DONE]"
    if "error" in exchange.ends and finished == choices:
        return f"both finished and failed: {exchange.ends}"
    return ""


def _compare(parts: Mapping[str, str], expected: Mapping[str, str], is_complete: bool) -> str:
    """Return where the text differs from the expected; a broken answer may stop early, but nowhere else."""
    for place in sorted({*parts, *expected}):
        got, wanted = parts.get(place, ""), expected.get(place, "")
        if got != wanted and (is_complete or not wanted.startswith(got)):
            at = next((i for i, (one, other) in enumerate(zip(got, wanted, strict=False)) if one != other), len(got))
            at = min(at, len(wanted))
            return (
                f"{place} at character {at} of {len(wanted)}: {got[at : at + 24]!r}, expected {wanted[at : at + 24]!r}"
            )
    return ""


def _unclear(exchange: Exchange) -> Iterable[tuple[Wrong, str]]:
    """Yield what is unclear about how an exchange failed."""
    if exchange.error is not None and not (isinstance(exchange.error, dict) and exchange.error.keys() >= ERROR_FIELDS):
        yield Wrong.UNCLEAR_ERROR, f"{exchange.status}: {str(exchange.error)[:200]}"
    if exchange.status not in (None, 200, 404) and not (exchange.status == 503 and exchange.retry_after):
        yield Wrong.UNCLEAR_REFUSAL, f"{exchange.status}, retry-after {exchange.retry_after}"


def judge_charges(history: Sequence[Exchange], charged: Charged) -> list[Fault]:
    """Return where the log differs from what was delivered: by request, and in sum."""
    records: dict[str, list[RequestRecord]] = defaultdict(list)
    for record in charged.records:
        records[record.request_id].append(record)
    faults = []
    for exchange in history:
        of_this = records.pop(exchange.request_id, []) if exchange.request_id else []
        faults += [Fault(wrong, exchange.number, detail) for wrong, detail in _compare_charge(exchange, of_this)]
    return faults + _judge_strangers(history, records) + _judge_sum(charged)


def _compare_charge(exchange: Exchange, records: Sequence[RequestRecord]) -> Iterable[tuple[Wrong, str]]:
    if len(records) > 1:
        yield Wrong.CHARGED_TWICE, f"{len(records)} records of {exchange.request_id}"
    if not exchange.is_complete:
        return
    if not records:
        yield Wrong.NOT_CHARGED, f"no record of {exchange.request_id}"
        return
    delivered = exchange.prompt_tokens, exchange.completion_tokens
    recorded = records[0].prompt_tokens, records[0].completion_tokens
    if recorded != delivered:
        yield Wrong.WRONG_CHARGE, f"{recorded} tokens recorded, {delivered} delivered"


def _judge_strangers(history: Sequence[Exchange], records: Mapping[str, Sequence[Any]]) -> list[Fault]:
    """Records that no answer names may only be of requests that were never answered, one each."""
    unanswered = sum(exchange.request_id is None for exchange in history)
    faults = [
        Fault(Wrong.CHARGED_TWICE, None, f"{len(group)} records of {request_id}")
        for request_id, group in records.items()
        if len(group) > 1
    ]
    if len(records) > unanswered:
        detail = f"{len(records)} records of requests that no answer names, {unanswered} requests without an answer"
        faults.append(Fault(Wrong.CHARGED_TWICE, None, detail))
    return faults


def _judge_sum(charged: Charged) -> list[Fault]:
    logged = (
        sum(record.prompt_tokens for record in charged.records),
        sum(record.completion_tokens for record in charged.records),
    )
    if charged.usage_tokens in (None, logged):
        return []
    return [Fault(Wrong.WRONG_CHARGE, None, f"usage rows have {charged.usage_tokens} tokens, the log {logged}")]


def count_wrongs(faults: Iterable[Fault]) -> Counter[str]:
    """Return how many faults there are of each kind."""
    return Counter(str(fault.wrong) for fault in faults)
