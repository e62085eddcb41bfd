"""Patterns of schemas as patterns of whole texts: read, narrowed and written so that no text is new."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.replica.schemas.rewriting import patterns
from deployments.replica.schemas.rewriting.expressions import in_json, may_be_slow, read
from deployments.replica.schemas.rewriting.parts import SchemaRefused

PARTS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "\\d", "\\S", "\\W", "a|b", "^a", "b$", "(a|b)c", "(?:ab)?"])
REPEATED = st.builds("{}{}".format, PARTS.map("(?:{})".format), st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}"]))
PATTERNS = st.lists(REPEATED, min_size=1, max_size=4).map("".join)
TEXTS = st.text(st.sampled_from('abc1 é\n"'), max_size=6)


def written(pattern):
    """Return a pattern as one of Python's, with what JSON escapes as it is in JSON."""
    expression = in_json(pattern)
    if expression is None:
        return None
    expression = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", expression)
    return re.compile(expression.replace("\x7f{0}", ""))


@given(PATTERNS, TEXTS)
def test_what_is_written_matches_only_what_the_pattern_finds(pattern, text):
    try:
        expression = written(read(pattern))
    except SchemaRefused:
        return
    if expression is not None and expression.fullmatch(text):
        assert re.search(pattern, text)


@given(PATTERNS, TEXTS, st.integers(0, 3), st.integers(0, 6))
def test_a_fitted_pattern_keeps_to_its_lengths(pattern, text, least, more):
    try:
        fitted = patterns.fitted(read(pattern), least, least + more)
    except SchemaRefused:
        return
    expression = None if fitted is None else written(fitted)
    if expression is not None and expression.fullmatch(text):
        assert re.search(pattern, text)
        assert least <= len(text) <= least + more


@given(st.lists(st.text(st.sampled_from("ab"), max_size=3), max_size=4), st.text(st.sampled_from("abc"), max_size=4))
def test_all_but_some_words_is_every_other_text(words, text):
    assert bool(written(patterns.all_but(words)).fullmatch(text)) == (text not in words)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)", "look-around"),
        (r"(a)\1", "back reference"),
        (r"a\b", "word boundary"),
        ("(?i)a", "flags"),
        ("a^b", "anchor within"),
        ("(a$)+", "anchor within"),
        ("(", "cannot be read|can be read"),
        (r"\p{L}", "can be read"),
    ],
)
def test_what_cannot_be_kept_is_said(pattern, why):
    with pytest.raises(SchemaRefused, match=why):
        read(pattern)


@pytest.mark.parametrize(
    ("pattern", "is_slow"), [("^[a-z]*$", False), ("^(ab)*$", False), ("^(a|aa)*$", True), ("^([a-z]+-)*[a-z]$", True)]
)
def test_repetitions_of_what_varies_are_told_from_others(pattern, is_slow):
    assert may_be_slow(in_json(read(pattern))) == is_slow
