"""The judge of two regions: each fault is seen, and what is right is none."""

import asyncio
from typing import Any

import pytest

from deployments.state.usage.record import RequestRecord
from tests.tools.drills.judge import Charged, Fault, Wrong
from tests.tools.drills.regions.calls import Call, Caller, RegionLoad, Size, Turn
from tests.tools.drills.regions.judge import (
    Kept,
    judge_calls,
    judge_kept,
    judge_limit,
    longest_wait_s,
    served_lost_s,
    stored_lost_s,
)
from tests.tools.drills.regions.rates import Admitted, busiest_window

ANSWERS = {"one": {"0.content": "said "}}


def call(**fields: Any) -> Call:
    whole = {
        "number": 0,
        "kind": "whole",
        "prompt": "one",
        "door": "us",
        "started": 10.0,
        "status": 200,
        "request_id": "req_1",
        "first_byte": 10.5,
        "ended": 11.0,
        "parts": {"0.content": "said "},
        "ends": ["finish:length"],
        "prompt_tokens": 2,
        "completion_tokens": 1,
        "attempts": 1,
    }
    return Call(**(whole | fields))


def record(request_id: str = "req_1", tokens: int = 1) -> RequestRecord:
    fields = dict.fromkeys(RequestRecord.__dataclass_fields__)
    return RequestRecord(
        **(fields | {"request_id": request_id, "model": "m", "prompt_tokens": 2, "completion_tokens": tokens})  # type: ignore[arg-type]
    )


def wrongs(history: list[Call], *records: RequestRecord, may_fail: bool = False) -> list[Wrong]:
    charged = Charged(records, (0, 0))
    return [fault.wrong for fault in judge_calls(history, ANSWERS, charged, lambda one: may_fail)]


def test_answered_call_that_is_charged_once_is_right() -> None:
    assert wrongs([call()], record()) == []


@pytest.mark.parametrize(
    ("fields", "records", "wrong"),
    [
        ({"parts": {"0.content": "other "}}, [record()], Wrong.WRONG_TEXT),
        ({"ended": None}, [record()], Wrong.HUNG),
        ({}, [], Wrong.NOT_CHARGED),
        ({}, [record(), record()], Wrong.CHARGED_TWICE),
        ({}, [record(tokens=3)], Wrong.WRONG_CHARGE),
        ({}, [record(), record("req_2")], Wrong.CHARGED_TWICE),
        ({"status": 503, "retry_after": "1", "error": {}, "ends": ["error"], "parts": {}}, [], Wrong.FAILED),
    ],
)
def test_fault_is_seen(fields: dict[str, Any], records: list[RequestRecord], wrong: Wrong) -> None:
    assert wrong in wrongs([call(**fields)], *records)


def test_request_that_the_client_repeated_may_be_charged_too() -> None:
    assert wrongs([call(attempts=2)], record(), record("req_2")) == []


def test_call_that_may_fail_is_no_fault() -> None:
    lost = call(status=None, lost="ReadError", ends=[], parts={}, request_id=None)
    assert wrongs([lost]) == [Wrong.FAILED]
    assert wrongs([lost], may_fail=True) == []


def test_turn_must_be_found_in_each_region_as_it_was() -> None:
    turns = [Turn("resp_1", None, "said "), Turn("resp_2", "resp_1", "more ")]
    whole = {"resp_1": ("said ", None), "resp_2": ("more ", "resp_1")}
    assert judge_kept(turns, Kept({"us": whole, "asia": whole})) == []
    lost = judge_kept(turns, Kept({"us": whole, "asia": {"resp_1": ("said ", None)}}))
    assert lost == [Fault(Wrong.LOST, None, "turn resp_2 is not found in asia")]
    other = judge_kept(turns, Kept({"us": whole | {"resp_2": ("more ", None)}}))
    assert [fault.wrong for fault in other] == [Wrong.WRONG_TEXT]
    assert [fault.wrong for fault in judge_kept([], Kept({}, ["a file"]))] == [Wrong.LOST]


def test_window_counts_what_surely_lies_in_it() -> None:
    steady = [Admitted(second, second + 0.1, "us") for second in range(180)]
    assert len(busiest_window(steady)) == 60
    assert len(busiest_window([*steady, Admitted(90.5, 90.6, "asia")])) == 61
    assert len(busiest_window([*steady, Admitted(90.5, 200.0, "asia")])) == 60
    assert busiest_window([]) == []


def test_limit_is_kept_and_used() -> None:
    steady = [Admitted(second, second + 0.1, "us") for second in range(60)]
    assert judge_limit(steady, 60, 0.9) == []
    assert [fault.wrong for fault in judge_limit(steady, 59, 0.0)] == [Wrong.LIMIT]
    assert [fault.wrong for fault in judge_limit(steady, 70, 0.9)] == [Wrong.LIMIT_UNUSED]


def test_wait_counts_calls_after_the_harm_that_were_answered() -> None:
    history = [
        call(started=1.0, first_byte=9.0),
        call(started=20.0, first_byte=23.0),
        call(started=20.0, first_byte=60.0, ends=["error"], error={}),
        call(started=20.0, first_byte=21.0, ended=40.0, kind="turn"),
    ]
    assert longest_wait_s(history, 15.0, 0.99, frozenset({"whole"})) == 3.0
    assert longest_wait_s(history, 15.0, 0.99, frozenset({"turn"})) == 20.0
    assert longest_wait_s(history, 50.0, 0.99, frozenset({"turn"})) is None


def test_what_fails_or_is_late_is_lost() -> None:
    failed = {"ends": ["error"], "error": {}}
    served = [
        call(started=0.0, first_byte=4.0),
        call(started=0.0, first_byte=6.0),
        call(started=0.0, ended=2.0, **failed),
        call(started=0.0, ended=9.0, kind="turn"),
    ]
    assert served_lost_s(served, num_clients=4) == (6.0 + 2.0) / 4
    turns = [call(kind="turn", started=float(second), ended=40.0, door="asia") for second in range(40)]
    turns += [call(kind="turn", started=float(second), ended=second + 1.0, door="us") for second in range(40)]
    assert stored_lost_s([*served[:3], *turns], every_s=1.0) == 35 / 2
    assert stored_lost_s([*turns, call(kind="turn", door="us", **failed)], every_s=1.0) == 36 / 2


async def test_turns_begin_whatever_the_others_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = asyncio.Event()
    asked: asyncio.Queue[Caller] = asyncio.Queue()

    async def ask(caller: Caller) -> None:
        asked.put_nowait(caller)
        await answered.wait()

    monkeypatch.setattr(Caller, "ask", ask)
    load = RegionLoad("key", Size(0, 0, 0, turn_every_s=0.01), sides=("us",))
    waiting = [await asked.get() for _ in range(5)]
    assert len({*waiting}) == 5
    waiting += [asked.get_nowait() for _ in range(asked.qsize())]
    answered.set()
    again = [await asked.get() for _ in range(5)]
    assert {*again[1:]} <= {*waiting, again[0]}
    await load.finish()
