"""Parsing JSON from strangers: what is refused, how cheaply, and that the count of brackets is exact."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.validation.body import (
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_MEMBERS,
    MAX_STRINGS,
    MAX_VALUES,
    JsonRefused,
    check_structure,
    is_json_object,
    parse_json,
)

TRICKY = st.text(alphabet='\\"[]{}:,a\u00e9\n', max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TRICKY,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TRICKY, inner, max_size=5),
    max_leaves=60,
)


def depth_of(value):
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(VALUES)
def test_value_comes_back_as_it_was(value):
    assert parse_json(json.dumps(value).encode()) == value


@given(VALUES, st.integers(min_value=0, max_value=2 * MAX_DEPTH))
def test_depth_is_counted_exactly(value, extra):
    for _ in range(extra):
        value = [value, '"]\\"'] if extra % 2 else {'a"}\\': value}
    raw = json.dumps(value).encode()
    if depth_of(value) > MAX_DEPTH:
        with pytest.raises(JsonRefused, match="nested deeper"):
            parse_json(raw)
    else:
        assert parse_json(raw) == value


@given(st.lists(st.just("[") | st.just("{") | TRICKY, max_size=300).map("".join))
def test_brackets_in_strings_do_not_count(text):
    parse_json(json.dumps([text, text]).encode())


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "It is empty."),
        (b" \n", "It is empty."),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"a":"\\ud800"}', "line 1"),
        (b'{"a":NaN}', "line 1, column 6"),
        (b'{"a":Infinity}', "line 1"),
        (b'{"a":-Infinity}', "line 1"),
        (b'{"a":1e999}', "line 1"),
        (b'{"a":' + b"9" * 10_000 + b"}", "line 1"),
        (b'{"a":1}x', "line 1"),
        (b'{"a":01}', "line 1"),
        (b"{'a':1}", "line 1"),
        (b'{"a":1,}', "line 1"),
        (b'{"a":"\n"}', "line 1"),
        (b'{"a":1', "line 1"),
        (b"{} // x", "line 1"),
        (b"\x00", "line 1"),
    ],
)
def test_what_is_not_json_is_refused_with_the_reason(raw, reason):
    with pytest.raises(JsonRefused, match=reason):
        parse_json(raw)


def test_last_of_duplicate_keys_counts():
    assert parse_json(b'{"n":1000000000,"n":1}') == {"n": 1}


HOSTILE = {
    "deep arrays": b"[" * 10_000 + b"]" * 10_000,
    "deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "deep and unclosed": b"[" * 1_000_000,
    "deep behind a string": b'["' + b'\\\\\\"' * 1000 + b'",' + b"[" * 10_000 + b"]" * 10_001,
    "many arrays": b"[" + b"[]," * (MAX_CONTAINERS + 1) + b"[]]",
    "many keys": b"{" + b",".join(b'"k%d":1' % i for i in range(MAX_MEMBERS + 1)) + b"}",
    "many strings": b"[" + b'"",' * (MAX_STRINGS + 1) + b'"",[]]' + b"[" * MAX_DEPTH,
    "many numbers": b"[" + b"0," * MAX_VALUES + b"0]",
    "many nothings behind a string": b'{"a\\",":[' + b"null," * (MAX_VALUES + 1) + b"null]}",
    "many strings with brackets": b"{" + b'"[":0,' * 150_000 + b'"":0}',
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_cheaply(raw):
    times_s = []
    for _ in range(3):  # A collection of garbage may fall into one of them.
        started = time.process_time()
        with pytest.raises(JsonRefused):
            parse_json(raw)
        times_s.append(time.process_time() - started)
    assert min(times_s) < 0.1


def test_a_prompt_of_a_million_tokens_is_accepted_and_commas_in_texts_do_not_count():
    check_structure(b'{"prompt":[' + b"7," * 1_048_575 + b"7]}")
    check_structure(b'{"prompt":"' + b"a, \\" * (2 * MAX_VALUES) + b'"}')


def test_structure_of_a_text_within_bounds_is_accepted():
    check_structure(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    check_structure(b"[" + b'"{",' * 10_000 + b"{}]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", True),
        ('{"a": 1}', True),
        ("[]", False),
        ("", False),
        ("{", False),
        ("\ud800", False),
        ('{"a":' * 100 + "1" + "}" * 100, False),
    ],
)
def test_json_object_in_a_string_is_recognized(text, expected):
    assert is_json_object(text) is expected
