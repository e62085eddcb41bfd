"""The smallest HTTP/1.1 client that can drive a server hard: keep-alive connections that parse just enough.

Servers under test share the machine with this client, so every microsecond spent here is taken from them. It is
therefore a bare `asyncio.Protocol` without tasks, futures or objects per event. It still checks every answer: its
status, that a stream ends with `[DONE]` and carries usage, and that the token counts are those asked for.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import orjson

DONE = b"data: [DONE]"
ERROR_PREFIX = b'data: {"error"'
CONTENT = (b'"content":"', b'"text":"')
EMPTY_CONTENT = (b'"content":""', b'"text":""')
TEXT_OF_RESPONSE = b"event: response.output_text.delta"


@dataclass(frozen=True, slots=True)
class Request:
    """One rendered HTTP request, and the bounds of its answer's tokens."""

    payload: bytes
    is_stream: bool
    min_tokens: int
    max_tokens: int


@dataclass(slots=True)
class Sample:
    """What was seen of one request. Times are `time.perf_counter()` seconds.

    `arrivals` has an entry for every event with text in it; events of one read share a time.
    `error` says what was wrong with the answer, None if nothing was.
    """

    started: float = 0.0
    ended: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None


class Connection(asyncio.Protocol):
    """One keep-alive connection: `send` one request at a time, `on_done` is called with its sample."""

    __slots__ = (
        "_buffer",
        "_is_chunked",
        "_is_in_body",
        "_last",
        "_left",
        "_previous",
        "_request",
        "_status",
        "_tail",
        "_transport",
        "_wants_close",
        "on_done",
        "sample",
    )

    def __init__(self, on_done: Callable[["Connection", Sample], None]) -> None:
        self.on_done = on_done
        self._transport: asyncio.Transport | None = None
        self._request: Request | None = None
        self.sample = Sample()
        self._reset()

    def _reset(self) -> None:
        self._buffer = b""
        self._tail = b""
        self._last = b""
        self._previous = b""
        self._left = 0  # Bytes that are missing from the chunk or body being read.
        self._is_in_body = False
        self._is_chunked = False
        self._wants_close = False
        self._status = b""

    @property
    def is_open(self) -> bool:
        """True while another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: Request) -> None:
        """Send one request; the one before must be done."""
        assert self._transport is not None
        self._request = request
        self._reset()
        self.sample = Sample(started=time.perf_counter())
        self._transport.write(request.payload)

    def close(self) -> None:
        """Hang up; a request that still runs is not reported."""
        self._request = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._request is not None:
            self._finish(time.perf_counter(), f"the connection was lost: {exc or 'closed by the server'}")

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._request is None:
            return
        data = self._buffer + data if self._buffer else data
        self._buffer = b""
        if not self._is_in_body:
            head, separator, data = data.partition(b"\r\n\r\n")
            if not separator:
                self._buffer = head
                return
            if not self._read_head(head, now):
                return
        if self._is_chunked:
            self._read_chunks(data, now)
        else:
            self._tail += data
            self._left -= len(data)
            if self._left <= 0:
                self._finish(now, self._check_body(self._tail))

    def _read_head(self, head: bytes, now: float) -> bool:
        status_line, _, fields = head.partition(b"\r\n")
        headers = fields.lower()
        self._wants_close = b"connection: close" in headers
        self._is_chunked = b"transfer-encoding: chunked" in headers
        at = headers.find(b"content-length:")
        if at >= 0:
            self._left = int(headers[at + 15 :].partition(b"\r\n")[0])
        elif not self._is_chunked:
            self._finish(now, "the answer has neither a length nor chunks")
            return False
        self._is_in_body = True
        self._status = status_line[9:12]
        return True

    def _read_chunks(self, data: bytes, now: float) -> None:
        position, end = 0, len(data)
        while position < end:
            line_end = data.find(b"\r\n", position)
            if line_end < 0:
                break
            size = int(data[position:line_end].partition(b";")[0], 16)
            start = line_end + 2
            if end < start + size + 2:
                break
            if size == 0:
                self._finish(now, self._check_end())
                return
            self._read_piece(data[start : start + size], now)
            position = start + size + 2
        self._buffer = data[position:]

    def _read_piece(self, piece: bytes, now: float) -> None:
        request = self._request
        if request is None:
            return
        if not request.is_stream or self._status != b"200":
            self._tail += piece
            return
        events = ((self._tail + piece) if self._tail else piece).split(b"\n\n")
        self._tail = events.pop()
        arrivals = self.sample.arrivals
        for event in events:
            if has_text(event):
                arrivals.append(now)
            elif event.startswith(ERROR_PREFIX):
                self.sample.error = event[:200].decode(errors="replace")
            self._previous, self._last = self._last, event

    def _check_end(self) -> str | None:
        assert self._request is not None
        if not self._request.is_stream or self._status != b"200":
            return self._check_body(self._tail)
        if self.sample.error is not None:
            return self.sample.error
        if self._last != DONE:
            return f"the stream did not end with [DONE] but with {self._last[:100]!r}"
        if self._tail:
            return "bytes after [DONE]"
        return self._check_body(self._previous.partition(b"data: ")[2])

    def _check_body(self, body: bytes) -> str | None:
        """Take the usage out of a whole answer, or out of a stream's last object, and check it."""
        assert self._request is not None
        if self._status != b"200":
            return f"status {self._status.decode()}: {body[:200].decode(errors='replace')}"
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            return f"no JSON: {body[:100]!r}"
        usage = answer.get("response", answer).get("usage")
        if not usage:
            return f"no usage in {body[:100]!r}"
        self.sample.prompt_tokens = usage.get("prompt_tokens", usage.get("input_tokens"))
        self.sample.completion_tokens = usage.get("completion_tokens", usage.get("output_tokens"))
        if not self._request.min_tokens <= self.sample.completion_tokens <= self._request.max_tokens:
            return f"{self.sample.completion_tokens} completion tokens"
        return None

    def _finish(self, now: float, error: str | None) -> None:
        sample, self._request = self.sample, None
        sample.ended = now
        sample.error = error
        if self._wants_close and self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.on_done(self, sample)


def has_text(event: bytes) -> bool:
    """Whether an event of a stream of chat, completions or responses brings text."""
    if event.startswith(b"event"):
        return event.startswith(TEXT_OF_RESPONSE)
    if CONTENT[0] in event:
        return EMPTY_CONTENT[0] not in event
    return CONTENT[1] in event and EMPTY_CONTENT[1] not in event
