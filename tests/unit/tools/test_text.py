"""Text and names that come out of a sandbox."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tools.sandbox.frames import is_safe_path, printable


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text):
    shown = printable(text)
    assert not [c for c in shown if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;aGVsbG8=\x1b\\after", "after"),
        ("\x1bPq...\x1b\\after", "after"),
        ("\x1bcreset", "reset"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("a\u202eb\u2066c", "abc"),
        ("\x9b2Ja", "2Ja"),
        ("é 漢 🙂", "é 漢 🙂"),
    ],
)
def test_what_is_shown(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize("path", ["a", "a/b.txt", "a b", "ä.txt", "...", ".hidden", "a" * 255])
def test_paths_below_the_folder(path):
    assert is_safe_path(path)


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a\\b", "a\nb", "a\0", "a" * 256, "\ud800"]
)
def test_paths_that_lead_elsewhere(path):
    assert not is_safe_path(path)
