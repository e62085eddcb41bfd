import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.channel import frames

FRAME = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=200))


@given(st.lists(FRAME, max_size=20), st.lists(st.integers(0, 5000), max_size=30))
def test_frames_come_back_whole_when_bytes_arrive_in_any_pieces(sent, cuts):
    data = b"".join(frames.render_frame(stream, kind, payload) for stream, kind, payload in sent)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parser = frames.FrameParser()
    received = []
    for start, end in itertools.pairwise(places):
        received.extend(parser.feed(data[start:end]))
    assert received == sent


def test_feed_raises_when_a_frame_announces_too_much():
    parser = frames.FrameParser(max_payload_bytes=10)
    with pytest.raises(frames.FrameError):
        list(parser.feed(frames.render_frame(1, frames.DATA, b"x" * 11)))


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50), st.binary(max_size=50))
def test_note_and_piece_come_back_together(stream, note, piece):
    ((number, kind, payload),) = frames.FrameParser().feed(frames.render_noted(stream, note, piece))
    assert (number, kind, frames.split_noted(payload)) == (stream, frames.NOTED, (note, piece))


@pytest.mark.parametrize("payload", [b"\x05\x00\x00\x00abc", b"\x05\x00"])
def test_split_raises_when_a_note_is_longer_than_its_frame(payload):
    with pytest.raises(frames.FrameError):
        frames.split_noted(payload)
