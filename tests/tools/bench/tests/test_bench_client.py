"""The measuring client sees what was sent, however the bytes were cut, and lets no wrong answer pass."""

import pytest

from tests.tools.bench.client import Connection, Request, Sample

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}\n\n'
DONE = b"data: [DONE]\n\n"


class Wire:
    """The half of a transport that the client uses."""

    def __init__(self) -> None:
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        """Take the request."""

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def receive(*reads: bytes, is_stream: bool = True, tokens: int = 3) -> list[Sample]:
    samples: list[Sample] = []
    connection = Connection(lambda _, sample: samples.append(sample))
    connection.connection_made(Wire())  # type: ignore[arg-type]
    connection.send(Request(b"POST", is_stream, tokens, tokens))
    for read in reads:
        connection.data_received(read)
    return samples


def test_stream_is_understood_when_cut_at_any_byte() -> None:
    answer = HEAD + chunked(ROLE, WORD + WORD, WORD, USAGE + DONE)
    for cut in range(1, len(answer)):
        (sample,) = receive(answer[:cut], answer[cut:])
        assert sample.error is None
        assert (len(sample.arrivals), sample.prompt_tokens, sample.completion_tokens) == (3, 7, 3)


def test_stream_of_a_response_is_understood() -> None:
    delta = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":" word"}\n\n'
    done = b'event: response.output_text.done\ndata: {"type":"response.output_text.done","text":" word word"}\n\n'
    usage = b'{"input_tokens":7,"output_tokens":3,"total_tokens":10}'
    end = b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":%s}}\n\n' % usage
    (sample,) = receive(HEAD + chunked(delta, delta + done, end, DONE))
    assert sample.error is None
    assert (len(sample.arrivals), sample.prompt_tokens, sample.completion_tokens) == (2, 7, 3)


def test_stream_is_understood_when_it_comes_byte_by_byte() -> None:
    answer = HEAD + chunked(ROLE, WORD, USAGE, DONE)
    (sample,) = receive(*(answer[at : at + 1] for at in range(len(answer))))
    assert sample.error is None
    assert len(sample.arrivals) == 1


def test_event_is_understood_when_chunks_cut_it() -> None:
    (sample,) = receive(HEAD + chunked(WORD[:20], WORD[20:] + USAGE[:5], USAGE[5:], DONE))
    assert sample.error is None
    assert len(sample.arrivals) == 1


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ((WORD, USAGE), "[DONE]"),
        ((WORD, DONE), "no usage"),
        ((WORD, b'data: {"error":{"message":"died"}}\n\n', USAGE, DONE), "died"),
        ((WORD, USAGE.replace(b'"completion_tokens":3', b'"completion_tokens":2'), DONE), "2 completion tokens"),
    ],
)
def test_stream_is_an_error_when_it_is_not_whole(pieces: tuple[bytes, ...], error: str) -> None:
    (sample,) = receive(HEAD + chunked(*pieces))
    assert sample.error is not None
    assert error in sample.error


def test_answer_is_an_error_when_it_is_refused() -> None:
    body = b'{"error":{"message":"no key"}}'
    (sample,) = receive(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert sample.error is not None
    assert sample.error.startswith("status 401")
    assert "no key" in sample.error


@pytest.mark.parametrize("is_chunked", [False, True])
def test_whole_answer_is_understood_when_not_streamed(is_chunked: bool) -> None:
    body = b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}'
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    answer = b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n" + (chunked(body[:9], body[9:]) if is_chunked else body)
    for cut in range(1, len(answer)):
        (sample,) = receive(answer[:cut], answer[cut:], is_stream=False)
        assert (sample.error, sample.completion_tokens) == (None, 3)


def test_request_is_an_error_when_the_connection_is_lost() -> None:
    samples: list[Sample] = []
    connection = Connection(lambda _, sample: samples.append(sample))
    connection.connection_made(Wire())  # type: ignore[arg-type]
    connection.send(Request(b"POST", True, 3, 3))
    connection.data_received(HEAD + chunked(WORD)[:-5])
    connection.connection_lost(None)
    assert [sample.error for sample in samples] == ["the connection was lost: closed by the server"]
