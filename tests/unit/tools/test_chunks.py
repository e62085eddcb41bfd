"""Chunks of text, words as codes, one ranking from several, conditions on attributes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tools.documents import chunks as chunks_module
from deployments.tools.documents.chunks import _TOKEN, split
from deployments.tools.documents.readers import InvalidFile
from deployments.tools.search_index.ranking import condition_of, fuse
from deployments.tools.search_index.terms import TermCoder, words_of


def num_tokens(text: str) -> int:
    return len(_TOKEN.findall(text))


def test_a_short_text_is_one_chunk() -> None:
    (chunk,) = split("  One two.\n", 100, 50, 100)
    assert chunk == ("  One two.", [0], 3)
    assert split(" \n", 100, 50, 100) == []


def test_chunks_overlap_and_end_with_paragraphs_where_they_can() -> None:
    text = "\n\n".join(f"Paragraph {number} has eight words in it, all short." for number in range(100))
    chunks = split(text, 100, 50, 100)
    assert all(75 <= num_tokens(chunk.text) <= 100 for chunk in chunks[:-1])
    assert all(chunk.text.endswith("all short.") for chunk in chunks)
    for before, after in pairwise(chunks):
        assert before.text[-50:] in after.text
    assert chunks[-1].text.endswith("Paragraph 99 has eight words in it, all short.")


def test_lines_and_sentences_are_ends_too_and_one_long_word_is_cut() -> None:
    lines = split("\n".join(["one two three four five"] * 100), 100, 0, 100)
    assert all(chunk.text.endswith("five") for chunk in lines)
    sentences = split("One two three four five six seven. " * 50, 100, 0, 100)
    assert all(chunk.text.endswith("seven.") for chunk in sentences)
    assert "".join(chunk.text for chunk in split("x" * 10_000, 100, 0, 100)) == "x" * 10_000


def test_text_of_short_paragraphs_is_repeated_once_at_most() -> None:
    text = "\n\n".join(" ".join(["word"] * 26) for _ in range(200))
    chunks = split(text, 100, 50, 100)
    assert sum(chunk.num_tokens for chunk in chunks) <= 2 * num_tokens(text)


def test_text_of_too_many_tokens_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_TOKENS", 300)
    assert split("a-" * 150, 100, 50, 100)
    with pytest.raises(InvalidFile, match="five million tokens"):
        split("a-" * 150 + "b", 100, 50, 100)


def test_passages_are_the_parts_of_a_chunk() -> None:
    text = "word " * 1000
    chunks = split(text, 800, 400, 250)
    assert [len(chunk.starts) for chunk in chunks] == [4, 3]
    for chunk in chunks:
        assert "".join(chunk.passages()) == chunk.text
        assert all(num_tokens(passage) <= 250 for passage in chunk.passages())


@given(st.text(max_size=3000), st.integers(100, 200), st.integers(0, 50), st.integers(20, 200))
def test_nothing_is_left_out(text: str, size: int, overlap: int, passage: int) -> None:
    chunks = split(text, size, overlap, passage)
    kept = "".join(_TOKEN.findall("".join(chunk.text for chunk in split(text, size, 0, passage))))
    assert kept == "".join(_TOKEN.findall(text))
    assert all("".join(chunk.passages()) == chunk.text for chunk in chunks)
    assert all(num_tokens(chunk.text) == chunk.num_tokens <= size for chunk in chunks)
    assert sum(chunk.num_tokens for chunk in chunks) <= 2 * num_tokens(text)


def test_words_are_compared_without_case_plural_and_width() -> None:
    assert list(words_of("Policies, POLICY boxes; 2024 status glass max_tokens ｆｕｌｌ")) == [  # noqa: RUF001
        "policy",
        "policy",
        "boxe",
        "2024",
        "status",
        "glass",
        "max",
        "token",
        "full",
    ]
    assert list(words_of("東京 ok")) == ["東", "京", "ok"]


def test_codes_tell_no_word_and_differ_by_key() -> None:
    coder = TermCoder(b"one")
    first = coder.code("the cat the dog")
    assert "cat" not in first
    codes = first.split(" ")
    assert (codes[0] == codes[2], len(set(codes))) == (True, 3)
    assert coder.code_query("How does the cat, the dog...") == " ".join([codes[1], codes[3]])
    assert coder.code_query("what the") == " ".join([coder.code("what"), codes[0]])
    assert TermCoder(b"one").code("Cats") == codes[1]
    assert TermCoder(b"two").code("cat") != codes[1]


def test_what_both_rankings_know_comes_first() -> None:
    ranked = fuse([(1.0, {"a": 0.6, "b": 0.5}), (1.0, {"b": 9.0, "c": 4.5})])
    assert ranked == [("b", pytest.approx(11 / 12)), ("a", pytest.approx(1 / 2)), ("c", pytest.approx(1 / 4))]
    assert fuse([(1.0, {"a": 0.2}), (1.0, {"a": 7.0})]) == [("a", pytest.approx(1.0))]
    assert fuse([(0.0, {"a": 0.9}), (2.0, {"b": 0.1})]) == [("b", pytest.approx(1.0))]
    assert fuse([]) == []


def test_how_much_better_a_result_is_counts_and_not_only_its_place() -> None:
    clear, close = {"a": 9.0, "b": 1.0}, {"b": 0.50, "a": 0.49}
    assert [name for name, _ in fuse([(1.0, clear), (1.0, close)])] == ["a", "b"]
    assert [name for name, _ in fuse([(1.0, clear), (50.0, close)])] == ["b", "a"]


def test_a_ranking_that_finds_nothing_takes_its_share_of_the_score() -> None:
    assert fuse([(3.0, {"a": 0.7}), (1.0, {})]) == [("a", pytest.approx(0.75))]


FILE = {"year": 2024.0, "by": "me", "draft": True}


@pytest.mark.parametrize(
    ("kind", "key", "value", "holds"),
    [
        ("eq", "year", 2024, True),
        ("eq", "by", "you", False),
        ("eq", "draft", 1, False),
        ("eq", "nothing", 1, False),
        ("ne", "nothing", 1, True),
        ("ne", "year", "2024", True),
        ("ne", "year", 2024, False),
        ("gt", "year", 2023, True),
        ("gte", "year", 2024, True),
        ("lt", "year", 2024, False),
        ("lte", "by", "n", True),
        ("lt", "by", 5, False),
        ("in", "by", ["you", "me"], True),
        ("in", "draft", [1], False),
        ("nin", "by", ["you"], True),
        ("nin", "nothing", ["you"], True),
    ],
)
def test_a_comparison_holds_or_not(kind: str, key: str, value: object, holds: bool) -> None:
    assert condition_of({"type": kind, "key": key, "value": value})(FILE) is holds


def test_conditions_are_joined() -> None:
    yes, no = ({"type": "eq", "key": "by", "value": value} for value in ("me", "you"))
    assert condition_of({"type": "and", "filters": [yes, yes]})(FILE)
    assert not condition_of({"type": "and", "filters": [yes, no]})(FILE)
    assert condition_of({"type": "or", "filters": [no, {"type": "and", "filters": [yes]}]})(FILE)
    assert not condition_of({"type": "or", "filters": [no]})(FILE)
