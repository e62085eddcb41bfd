"""Frames of the side channel: the bytes on a connection.

A frame is a header of nine bytes and a payload: its length (unsigned 32 bits, little-endian), the number of
the request on this connection (the same), and the kind (one byte). `OPEN` and `CANCEL` go from the client to
the server, the others come back. A connection starts with one `HELLO`, whose payload is the secret.
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

_HEADER = struct.Struct("<IIB")
HEADER_BYTES: Final = _HEADER.size
MAX_PAYLOAD_BYTES: Final = 512 * 1024 * 1024


class FrameError(Exception):
    """The bytes on the connection are not frames; the connection must be closed."""


def render_frame(stream: int, kind: int, payload: bytes = b"") -> bytes:
    """Return one frame as bytes."""
    return _HEADER.pack(len(payload), stream, kind) + payload


class FrameParser:
    """Splits the bytes of one connection into frames."""

    def __init__(self, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._buffer = b""
        self._parts: list[bytes] = []
        self._missing = 0
        self._max_payload_bytes = max_payload_bytes

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
            if size > self._max_payload_bytes:
                raise FrameError(f"a frame of {size} bytes is larger than the {self._max_payload_bytes} allowed")
            body = position + HEADER_BYTES
            position_after = body + size
            if position_after > end:
                self._missing = position_after - end
                self._parts.append(data[position:])
                return
            yield stream, kind, data[body:position_after]
            position = position_after
        self._buffer = data[position:]
