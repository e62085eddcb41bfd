"""The code of a call, read out of the JSON text of its arguments piece by piece."""

import json
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.contract.text_member import TextMember
from serve_app.operations.containers.tool import CodeInWriting

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6) | st.just("code"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["code", "a", "\\", '"']), inner),
    max_leaves=6,
)
CODES = st.text(max_size=12) | st.text(alphabet='\\"/n\n\t\u0000é€😀u', max_size=12)
OBJECTS = st.builds(
    lambda before, code, after: {**before, "code": code, **{name: after[name] for name in after if name != "code"}},
    st.dictionaries(st.text(max_size=4).filter(lambda name: name != "code") | st.just("Code"), VALUES, max_size=3),
    CODES,
    st.dictionaries(st.text(max_size=4), VALUES, max_size=2),
)
PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "\\",
    '"code"',
    '"code":"',
    "\\u",
    "d83d",
    "\\ude00",
    "00e9",
    "x",
    "\n",
    " ",
]
ANYTHING = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)
CUTS = st.lists(st.integers(0, 400), max_size=30)


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place for place in places if place < len(text)), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def read(pieces: list[str]) -> tuple[str, str | None]:
    """Return the text that the pieces add up to, and the text as the whole."""
    member = TextMember("code")
    return "".join(member.take(piece) for piece in pieces), member.text


@given(told=OBJECTS, is_ascii=st.booleans(), indent=st.sampled_from([None, 1]), places=CUTS)
def test_wherever_the_arguments_are_cut_the_code_is_the_same(told, is_ascii, indent, places):
    text = json.dumps(told, ensure_ascii=is_ascii, indent=indent)
    assert read(cut(text, places)) == (told["code"], told["code"])
    assert read(list(text)) == (told["code"], told["code"])


@given(text=ANYTHING, places=CUTS)
def test_what_is_no_json_gives_the_same_text_however_it_comes(text, places):
    shown, whole = read([text])
    assert read(cut(text, places)) == read(list(text)) == (shown, whole)
    assert shown == (whole or "")
    orjson.dumps(shown)  # No half of a character is ever shown.


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"code":""}', ""),
        ('{"code": 5, "code": "a"}', "a"),
        ('{"code": "a", "code": "b"}', "a"),
        ('{"c\\u006fde": "a"}', "a"),
        ('{"a": {"code": "b"}, "b": ["code"], "code": "a"}', "a"),
        ('{"code": {"code": "b"}}', None),
        ('{"a": "code"}', None),
        ('"code"', None),
        ("", None),
        ('{"code": "a\\ud83d\\ude00b"}', "a😀b"),
        ('{"code": "a\\ud83db"}', "a"),
        ('{"code": "a\\ude00b"}', "a"),
        ('{"code": "a\nb"}', "a"),
        ('{"code": "a\\xb"}', "a"),
        ('{"code": "a', "a"),
    ],
)
def test_which_text_is_the_code(text, code):
    assert read([text]) == read(list(text)) == (code or "", code)


def test_arguments_without_end_are_read_in_time():
    text = '{"a": [' + "[]," * 300_000 + '"\\"", 1], "code": "' + "x\\n" * 300_000 + '"}'
    assert read([text]) == ("x\n" * 300_000,) * 2


def test_a_character_is_shown_once_it_is_whole():
    member = TextMember("code")
    pieces = ['{"code":"a', "\\", "n", "\\u00", "e9", "\\ud83d", "\\ude", "00", '"', "}"]
    assert [member.take(piece) for piece in pieces] == ["a", "", "\n", "", "é", "", "", "😀", "", ""]


def test_the_events_of_a_call_tell_what_its_item_holds():
    writing = CodeInWriting({"code": ""})
    events = [*writing.begin(), *writing.take('{"code'), *writing.take('":"a'), *writing.take('b"}'), *writing.end()]
    head = "response.code_interpreter_call"
    assert events == [
        (f"{head}.in_progress", {}),
        (f"{head}_code.delta", {"delta": "a"}),
        (f"{head}_code.delta", {"delta": "b"}),
        (f"{head}_code.done", {"code": "ab"}),
    ]
    assert writing.item == {"code": "ab"}
