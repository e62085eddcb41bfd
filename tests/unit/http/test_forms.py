"""Multipart forms: the same events whatever the split, and nothing that is not a form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.http.forms import MAX_PARTS, FormParser, FormRefused, PartBegin, PartData, PartEnd

TYPE = "multipart/form-data; boundary=xyz"


def part(headers: str, content: bytes) -> bytes:
    return b"--xyz\r\n" + headers.encode() + b"\r\n\r\n" + content + b"\r\n"


FORM = (
    part('Content-Disposition: form-data; name="purpose"', b"batch")
    + part('content-disposition: form-data; name="file"; filename="a b.jsonl"\r\nContent-Type: x/y', b"\r\n--xy\r\n--")
    + b"--xyz--\r\n"
)


def parse(body: bytes, *cuts: int, content_type: str = TYPE) -> list[tuple[str, str | None, bytes]]:
    parser = FormParser(content_type)
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    parts: list[tuple[str, str | None, bytes]] = []
    is_open = False
    for start, stop in zip(places, places[1:], strict=False):  # noqa: RUF007
        for event in parser.feed(body[start:stop]):
            if isinstance(event, PartBegin):
                assert not is_open
                parts.append((event.name, event.filename, b""))
            elif isinstance(event, PartData):
                parts[-1] = (*parts[-1][:2], parts[-1][2] + event.data)
            is_open = not isinstance(event, PartEnd)
    parser.finish()
    return parts


EXPECTED = [("purpose", None, b"batch"), ("file", "a b.jsonl", b"\r\n--xy\r\n--")]


def test_every_split_in_two_gives_the_same_parts() -> None:
    for cut in range(len(FORM)):
        assert parse(FORM, cut) == EXPECTED


@given(st.lists(st.integers(0, len(FORM)), max_size=40))
def test_any_split_gives_the_same_parts(cuts: list[int]) -> None:
    assert parse(FORM, *cuts) == EXPECTED


@pytest.mark.parametrize(
    "content_type",
    ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=xyz"],
)
def test_another_content_type_is_refused(content_type: str) -> None:
    with pytest.raises(FormRefused, match="content type"):
        FormParser(content_type)


@pytest.mark.parametrize("length", range(0, len(FORM) - 4, 7))
def test_a_form_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(FormRefused, match="ends in the middle"):
        parse(FORM[:length])


@pytest.mark.parametrize(
    "body",
    [
        b"not a form at all",
        b"--abc\r\n\r\n",
        part("Content-Disposition: form-data", b"nameless"),
        part("X: y", b"nameless"),
        part('Content-Disposition: form-data; name="' + "n" * 300 + '"', b""),
        part("X: " + "y" * 100_000, b""),
        b"".join(part(f'Content-Disposition: form-data; name="{n}"', b"") for n in range(MAX_PARTS + 1)),
    ],
)
def test_what_is_no_form_within_bounds_is_refused(body: bytes) -> None:
    with pytest.raises(FormRefused):
        parse(body + b"--xyz--\r\n")
