"""The judge of the drills: it lets a good history pass, and sees each way in which one can be bad."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from deployments.state.usage.record import RequestRecord
from tests.tools.drills.exchange import Exchange
from tests.tools.drills.judge import Bounds, Charged, Fault, Wrong, judge

EXPECTED = {"sea": {"0.content": "the sea is wide "}, "hill": {"0.content": "the hill is high "}}
ERROR = {"message": "The model stopped.", "type": "server_error", "param": None, "code": None}


def chunk(text: str = "", finish: str | None = None) -> bytes:
    return b'{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}' % (
        text.encode(),
        b"null" if finish is None else f'"{finish}"'.encode(),
    )


def stream(number: int = 0, prompt: str = "sea", texts: tuple[str, ...] = ("the ", "sea ", "is ", "wide ")) -> Exchange:
    """Return a stream that went well, up to its end."""
    exchange = Exchange(number, "stream", prompt, "worker-1", started=1.0, status=200, request_id=f"req_{number}")
    exchange.first_byte, exchange.longest_wait_s = 1.1, 0.2
    for text in texts:
        exchange.add_event(chunk(text))
    exchange.prompt_tokens, exchange.completion_tokens = 3, 4
    return exchange


def complete(exchange: Exchange) -> Exchange:
    exchange.add_event(chunk(finish="length"))
    exchange.add_event(b"[DONE]")
    exchange.ended = 2.0
    return exchange


def whole(number: int = 1) -> Exchange:
    exchange = Exchange(
        number, "whole", "hill", "worker-2", started=1.0, status=200, request_id=f"req_{number}", ended=1.5
    )
    message = {"message": {"content": "the hill is high "}, "index": 0, "finish_reason": "stop"}
    exchange.add_object({"choices": [message], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
    return exchange


def record(request_id: str, **fields: Any) -> RequestRecord:
    return replace(
        RequestRecord(
            request_id=request_id,
            at=0.0,
            key_id="key",
            account="a",
            tier="t",
            method="POST",
            route="/v1/chat/completions",
            model="m",
            status=200,
            code=None,
            stream=True,
            prompt_tokens=3,
            completion_tokens=4,
            cached_tokens=0,
            ttft_s=0.1,
            total_s=1.0,
        ),
        **fields,
    )


def charged(*records: RequestRecord) -> Charged:
    sums = sum(one.prompt_tokens for one in records), sum(one.completion_tokens for one in records)
    return Charged(records, sums)


def wrongs(*history: Exchange, books: Charged | None = None, bounds: Bounds | None = None) -> list[Wrong]:
    books = charged(*(record(one.request_id) for one in history if one.request_id)) if books is None else books
    return [fault.wrong for fault in faults(*history, books=books, bounds=bounds or Bounds())]


def faults(*history: Exchange, books: Charged, bounds: Bounds) -> list[Fault]:
    return judge(history, EXPECTED, books, bounds)


def refused(status: int, error: Any, retry_after: str | None = "1") -> Exchange:
    exchange = Exchange(0, "whole", "sea", "worker-1", 1.0, status=status, retry_after=retry_after, ended=1.1)
    exchange.error = error
    return exchange


def any_may_fail() -> Bounds:
    return Bounds(may_fail=lambda exchange: True)


def test_history_in_which_all_went_well_passes() -> None:
    assert wrongs(complete(stream()), whole()) == []


def test_stream_that_never_ends_is_seen_even_where_it_may_fail() -> None:
    assert wrongs(stream(), bounds=any_may_fail()) == [Wrong.HUNG]


@pytest.mark.parametrize(
    "add_end",
    [
        lambda one: one.add_event(b"[DONE]"),
        lambda one: one.add_event(chunk("more ")),
        lambda one: one.add_event(chunk(finish="length")),
    ],
    ids=["another DONE", "text after DONE", "another finish after DONE"],
)
def test_second_end_is_seen(add_end: Callable[[Exchange], None]) -> None:
    exchange = complete(stream())
    add_end(exchange)
    assert Wrong.ENDED_TWICE in wrongs(exchange)


def test_second_finish_reason_before_the_end_is_seen() -> None:
    exchange = stream()
    exchange.add_event(chunk(finish="length"))
    assert wrongs(complete(exchange)) == [Wrong.ENDED_TWICE]


def test_error_event_after_a_finish_is_seen() -> None:
    exchange = stream()
    exchange.add_event(chunk(finish="length"))
    exchange.add_object({"error": ERROR})
    exchange.ended = 2.0
    assert wrongs(exchange, bounds=any_may_fail()) == [Wrong.ENDED_TWICE]


@pytest.mark.parametrize(
    "texts",
    [
        ("the ", "is ", "wide "),
        ("the ", "sea ", "sea ", "is ", "wide "),
        ("the ", "hill ", "is ", "wide "),
        ("the ", "sea ", "is "),
    ],
    ids=["lost", "twice", "of another", "last lost"],
)
def test_token_that_is_lost_or_comes_twice_or_is_of_another_is_seen(texts: tuple[str, ...]) -> None:
    assert wrongs(complete(stream(texts=texts))) == [Wrong.WRONG_TEXT]


def test_text_of_another_choice_than_expected_is_seen() -> None:
    exchange = stream()
    exchange.parts["1.content"] = "the sea is wide "
    assert wrongs(complete(exchange)) == [Wrong.WRONG_TEXT]


def test_broken_stream_fails_and_its_text_must_be_a_beginning() -> None:
    broken, astray = stream(texts=("the ", "sea ")), stream(1, texts=("the ", "is "))
    for exchange in (broken, astray):
        exchange.add_object({"error": ERROR})
        exchange.ended = 1.6
    assert wrongs(broken) == [Wrong.FAILED]
    assert wrongs(broken, bounds=any_may_fail()) == []
    assert wrongs(astray, bounds=any_may_fail()) == [Wrong.WRONG_TEXT]


def test_stream_that_stops_without_an_end_or_an_error_fails() -> None:
    exchange = stream()
    exchange.ended = 2.0
    assert wrongs(exchange) == [Wrong.FAILED]


def test_connection_that_is_lost_fails() -> None:
    exchange = Exchange(0, "whole", "sea", "worker-1", 1.0, lost="ConnectError: refused", ended=1.1)
    assert wrongs(exchange) == [Wrong.FAILED]
    assert wrongs(exchange, bounds=any_may_fail()) == []


def test_more_failures_than_may_be_are_seen() -> None:
    lost = [Exchange(number, "whole", "sea", "worker-1", 1.0, lost="reset", ended=1.1) for number in range(3)]
    bounds = Bounds(may_fail=lambda exchange: True, max_failed=2)
    assert wrongs(*lost, bounds=bounds) == [Wrong.FAILED]


def test_not_found_is_seen_even_where_requests_may_fail() -> None:
    assert wrongs(refused(404, ERROR), bounds=any_may_fail()) == [Wrong.NOT_FOUND]


@pytest.mark.parametrize("error", ["<html>Bad Gateway</html>", {"detail": "no"}, {"message": "no"}])
def test_error_in_another_shape_than_openai_s_is_seen(error: Any) -> None:
    assert wrongs(refused(503, error), bounds=any_may_fail()) == [Wrong.UNCLEAR_ERROR]


@pytest.mark.parametrize(("status", "retry_after"), [(503, None), (502, "1"), (500, None), (429, "1")])
def test_refusal_must_be_a_503_that_says_when_to_come_back(status: int, retry_after: str | None) -> None:
    assert wrongs(refused(503, ERROR), bounds=any_may_fail()) == []
    assert wrongs(refused(status, ERROR, retry_after), bounds=any_may_fail()) == [Wrong.UNCLEAR_REFUSAL]


def test_wait_that_is_longer_than_promised_is_seen() -> None:
    exchange = complete(stream())
    exchange.longest_wait_s = 1.5
    assert wrongs(exchange, bounds=Bounds(longest_wait_s={"stream": 1.2})) == [Wrong.SLOW]
    assert wrongs(exchange, bounds=Bounds(longest_wait_s={"stream": 1.6, "whole": 0.1})) == []


def test_double_charge_is_seen_by_its_id() -> None:
    exchange = complete(stream())
    assert wrongs(exchange, books=charged(record("req_0"), record("req_0"))) == [Wrong.CHARGED_TWICE]


def test_double_charge_under_another_id_is_seen() -> None:
    exchange = complete(stream())
    assert wrongs(exchange, books=charged(record("req_0"), record("req_9"))) == [Wrong.CHARGED_TWICE]


def test_request_that_was_never_answered_may_be_charged_once() -> None:
    lost = Exchange(1, "whole", "sea", "worker-1", 1.0, lost="reset", ended=1.1)
    exchange = complete(stream())
    assert wrongs(exchange, lost, books=charged(record("req_0"), record("req_9")), bounds=any_may_fail()) == []
    books = charged(record("req_0"), record("req_9"), record("req_9"))
    assert wrongs(exchange, lost, books=books, bounds=any_may_fail()) == [Wrong.CHARGED_TWICE]


def test_answer_that_nobody_was_charged_for_is_seen() -> None:
    assert wrongs(complete(stream()), books=charged()) == [Wrong.NOT_CHARGED]


def test_charge_for_other_tokens_than_were_delivered_is_seen() -> None:
    books = charged(record("req_0", completion_tokens=8))
    assert wrongs(complete(stream()), books=books) == [Wrong.WRONG_CHARGE]


def test_usage_that_differs_from_the_log_is_seen() -> None:
    assert wrongs(complete(stream()), books=Charged([record("req_0")], (3, 8))) == [Wrong.WRONG_CHARGE]
