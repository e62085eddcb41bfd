"""Frames of the side channel: the bytes on a connection.

A frame is a header of nine bytes and a payload: its length (unsigned 32 bits, little-endian), the number of
the request on this connection (the same), and the kind (one byte). `OPEN` and `CANCEL` go from the client to
the server, the others come back. A connection starts with one `HELLO`, whose payload is the secret.

A piece may carry a note: bytes for the process that reads the answer, not a part of it. Both are in one frame, `NOTED`,
so that one never arrives without the other. For the same reason `END` holds the summary, a line of JSON, and then the
last piece, if there is one. `PING` goes both ways, without a payload.
"""

import struct
from collections.abc import Iterator
from typing import Final

HELLO: Final = 0
OPEN: Final = 1
CANCEL: Final = 2
DATA: Final = 3
END: Final = 4
ERROR: Final = 5
NOTED: Final = 6
PING: Final = 7

_HEADER = struct.Struct("<IIB")
_NOTED = struct.Struct("<IIBI")
_LENGTH = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size
MAX_PAYLOAD_BYTES: Final = 512 * 1024 * 1024
MAX_HELLO_BYTES: Final = 64
"""The length of a secret: a connection that has not sent it may announce no more."""


class FrameError(Exception):
    """The bytes on the connection are not frames; the connection must be closed."""


def render_frame(stream: int, kind: int, payload: bytes = b"") -> bytes:
    """Return one frame as bytes."""
    return _HEADER.pack(len(payload), stream, kind) + payload


def render_noted(stream: int, note: bytes, piece: bytes) -> bytes:
    """Return the frame of a piece that carries a note."""
    size = len(note)
    return _NOTED.pack(_LENGTH.size + size + len(piece), stream, NOTED, size) + note + piece


def split_noted(payload: bytes) -> tuple[bytes, bytes]:
    """Return the note and the piece of a `NOTED` frame.

    Raises:
        FrameError: the payload is shorter than its note.
    """
    try:
        end = 4 + _LENGTH.unpack_from(payload)[0]
    except struct.error:
        raise FrameError("a frame is too short for the length of its note") from None
    if end > len(payload):
        raise FrameError("a frame is shorter than its note")
    return payload[4:end], payload[end:]


class FrameParser:
    """Splits the bytes of one connection into frames; `max_payload_bytes` may change between two of them."""

    def __init__(self, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self.max_payload_bytes = max_payload_bytes
        self._buffer = b""
        self._parts: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield (stream, kind, payload) for each frame that `data` completes.

        Raises:
            FrameError: a frame announces more than the largest payload.
        """
        if self._missing > len(data):  # In the middle of a large frame: only collect.
            self._parts.append(data)
            self._missing -= len(data)
            return
        if self._parts:
            self._parts.append(data)
            data = b"".join(self._parts)
            self._parts.clear()
        elif self._buffer:
            data = self._buffer + data
        self._buffer = b""
        self._missing = 0
        position, end = 0, len(data)
        unpack = _HEADER.unpack_from
        while end - position >= HEADER_BYTES:
            size, stream, kind = unpack(data, position)
            if size > self.max_payload_bytes:
                raise FrameError(f"a frame of {size} bytes is larger than the {self.max_payload_bytes} allowed")
            body = position + HEADER_BYTES
            position_after = body + size
            if position_after > end:
                self._missing = position_after - end
                self._parts.append(data[position:])
                return
            yield stream, kind, data[body:position_after]
            position = position_after
        self._buffer = data[position:]
