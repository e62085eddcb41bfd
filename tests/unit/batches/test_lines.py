"""Lines of input files, in pieces of any size; lines of output files, for answers of any content."""

import asyncio
import json
from collections.abc import AsyncIterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch.lines import read_custom_id, render_answer, render_not_run
from serve_app.validation.batch_lines import (
    MAX_ERRORS,
    LineFault,
    LineIndex,
    LineSplitter,
    Rules,
    Validation,
    count_generated_tokens,
    index_lines,
    parse_line,
    validate,
)

CHAT = "/v1/chat/completions"
LIMIT = 64


def split(content: bytes, cuts: list[int], limit: int = LIMIT) -> list[tuple[int, int, int, int, bytes | None]]:
    splitter, lines = LineSplitter(limit), []
    places = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    for start, stop in zip(places, places[1:], strict=False):  # noqa: RUF007
        lines += splitter.feed(content[start:stop])
    lines += splitter.finish()
    return [(*line.place, line.number, line.content) for line in lines]


texts = st.lists(
    st.sampled_from([b"a", b"bc", b"", b" ", b"\t", b"\xef\xbb\xbf", b"\xff", b"x" * 70, b"y" * LIMIT, b"\r"]),
    max_size=8,
).map(b"".join)
contents = st.lists(st.tuples(texts, st.sampled_from([b"\n", b"\r\n"])), max_size=8).map(
    lambda lines: b"".join(text + end for text, end in lines)
)


@given(contents, texts, st.lists(st.integers(0, 400), max_size=20))
def test_any_split_gives_the_same_lines(content: bytes, rest: bytes, cuts: list[int]) -> None:
    whole = split(content + rest, [])
    assert split(content + rest, cuts) == whole
    for number, (line, offset, length, _, found) in enumerate(whole):
        assert line == number
        if found is not None:
            assert (content + rest)[offset : offset + length] == found
            assert found.strip()
            assert len(found) <= LIMIT
            assert b"\n" not in found
    expected = (content + rest).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert len(whole) == sum(bool(one.strip()) for one in expected) or any(len(one) > LIMIT for one in expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a", [(0, 0, 1, 1, b"a")]),
        (b"a\n", [(0, 0, 1, 1, b"a")]),
        (b"a\r\nb", [(0, 0, 1, 1, b"a"), (1, 3, 1, 2, b"b")]),
        (b"\n \na\n", [(0, 3, 1, 3, b"a")]),
        (b"\xef\xbb\xbfa\nb\n", [(0, 3, 1, 1, b"a"), (1, 5, 1, 2, b"b")]),
        (b"x" * 65 + b"\na", [(0, 0, 65, 1, None), (1, 66, 1, 2, b"a")]),
        (b"x" * 64 + b"\r\n", [(0, 0, 64, 1, b"x" * 64)]),
        (b"x" * 1000 + b"\n" + b"y" * 1000, [(0, 0, 1000, 1, None), (1, 1001, 1000, 2, None)]),
    ],
)
def test_lines_are_where_they_are(content: bytes, expected: list) -> None:
    assert split(content, []) == expected
    assert split(content, list(range(len(content)))) == expected


def test_a_line_that_is_too_long_is_not_kept() -> None:
    splitter = LineSplitter(1000)
    for _ in range(100):
        assert list(splitter.feed(b"x" * 100_000)) == []
    assert len(splitter._kept) <= 1001
    ((place, number, content),) = splitter.finish()
    assert (place.length, number, content) == (10_000_000, 1, None)


def request(**overrides) -> bytes:
    values = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "m", "messages": []}, **overrides}
    return orjson.dumps({name: value for name, value in values.items() if value is not None})


def test_a_request_is_read() -> None:
    parsed = parse_line(request(more="is let through"), CHAT)
    assert parsed.custom_id == "a"
    assert parsed.body == {"model": "m", "messages": []}
    assert read_custom_id(request()) == "a"


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"[]", b"1", b"null", b"\xff", b'{"a":1}{"a":1}', b"{" * 100, b'{"a":' * 70 + b"1" + b"}" * 70],
)
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(LineFault) as refused:
        parse_line(content, CHAT)
    assert refused.value.code == "invalid_json_line"
    assert refused.value.message == "This line is not parseable as valid JSON."


async def pieces_of(content: bytes, size: int = 7) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def check(content: bytes, **rules: int) -> Validation:
    limits = Rules(CHAT, rules.get("max_requests", 1000), rules.get("max_line_bytes", 10_000))
    return asyncio.run(validate(pieces_of(content), limits))


def test_an_index_is_the_same_after_validation_and_without() -> None:
    content = b"\n".join(request(custom_id=str(number)) for number in range(20)) + b"\n\n"
    found = check(content)
    again = asyncio.run(index_lines(pieces_of(content, 11), 10_000))
    assert found.errors == []
    assert len(found.index) == len(again) == 20
    assert found.index.places(range(20)) == again.places(range(20))
    place = again.place(7)
    assert read_custom_id(content[place.offset : place.offset + place.length]) == "7"
    assert found.estimated_tokens > 20


@pytest.mark.parametrize(
    ("endpoint", "body", "num_tokens"),
    [
        (CHAT, {}, 1024),
        (CHAT, {"max_tokens": 30}, 30),
        (CHAT, {"max_tokens": 30, "max_completion_tokens": 20, "n": 5}, 100),
        (CHAT, {"max_tokens": 10**30, "n": 10**30}, 128_000_000),
        (CHAT, {"max_tokens": -1, "n": -1}, 0),
        (CHAT, {"max_tokens": "many", "n": None}, 1024),
        ("/v1/completions", {"prompt": "a"}, 16),
        ("/v1/completions", {"prompt": [1, 2, 3], "n": 2}, 32),
        ("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 10, "n": 2}, 60),
        ("/v1/completions", {"prompt": [[1], [2]], "max_tokens": 10}, 20),
        ("/v1/responses", {"max_output_tokens": 40}, 40),
        ("/v1/responses", {"max_tokens": 40}, 1024),
        ("/v1/embeddings", {"input": "a"}, 0),
    ],
)
def test_what_a_line_may_generate_counts(endpoint: str, body: dict[str, object], num_tokens: int) -> None:
    assert count_generated_tokens(endpoint, body) == num_tokens


def test_the_tokens_of_lines_add_up() -> None:
    bodies = [{"model": "m", "messages": [], "max_tokens": num} for num in (10, 1000)]
    few, many = (check(b"\n".join(request(custom_id=name, body=body) for name in "ab")) for body in bodies)
    assert many.estimated_tokens - few.estimated_tokens == pytest.approx(2 * 990, abs=4)


def test_errors_are_counted_up_to_a_bound() -> None:
    found = check(b"x\n" * 500)
    assert len(found.errors) == MAX_ERRORS
    assert [error["line"] for error in found.errors] == list(range(1, MAX_ERRORS + 1))


def test_one_line_too_many_ends_the_pass() -> None:
    content = b"\n".join(request(custom_id=str(number)) for number in range(11))
    assert check(content, max_requests=11).errors == []
    (error,) = check(content, max_requests=10).errors
    assert (error["code"], error["line"]) == ("too_many_requests", None)


def test_the_inputs_of_embedding_batches_are_bounded() -> None:
    body = {"model": "m", "input": ["x"] * 30_000}
    content = b"\n".join(request(custom_id=str(n), url="/v1/embeddings", body=body) for n in range(2))
    found = asyncio.run(validate(pieces_of(content, 100_000), Rules("/v1/embeddings", 10, 1_000_000)))
    assert [(error["code"], error["line"]) for error in found.errors] == [("too_many_inputs", 2)]
    tokens = request(url="/v1/embeddings", body={"model": "m", "input": list(range(60_000))})
    assert asyncio.run(validate(pieces_of(tokens, 100_000), Rules("/v1/embeddings", 10, 1_000_000))).errors == []


def test_fifty_thousand_lines_take_eight_bytes_each() -> None:
    index = LineIndex()
    assert index.offsets.itemsize + index.lengths.itemsize == 8


@given(st.text(), st.integers(100, 599), st.dictionaries(st.text(), st.text()))
def test_output_lines_are_json_in_one_line(custom_id: str, status: int, body: dict[str, str]) -> None:
    try:
        custom_id.encode()
    except UnicodeEncodeError:
        return
    for rendered_body in (orjson.dumps(body), orjson.dumps(body, option=orjson.OPT_INDENT_2)):
        rendered = render_answer(custom_id, "req_1", status, rendered_body)
        assert rendered.count(b"\n") == 1
        value = json.loads(rendered)
        assert list(value) == ["id", "custom_id", "response", "error"]
        assert value["custom_id"] == custom_id
        assert value["response"] == {"status_code": status, "request_id": "req_1", "body": body}
        assert value["error"] is None


def test_lines_that_were_not_run_say_why() -> None:
    value = json.loads(render_not_run("a", "batch_expired", "Too late."))
    assert value["id"].startswith("batch_req_")
    assert {name: value[name] for name in ("custom_id", "response", "error")} == {
        "custom_id": "a",
        "response": None,
        "error": {"code": "batch_expired", "message": "Too late."},
    }
