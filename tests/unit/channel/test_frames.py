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
