"""Reads multipart forms piece by piece, so that no file is ever held whole."""

from typing import Any, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

MAX_PARTS = 32
_MAX_NAME_CHARS = 256


class FormRefused(ValueError):
    """The body is not a multipart form within bounds; the message is for the client."""


class PartBegin(NamedTuple):
    """A part begins; `filename` is None unless the part is a file."""

    name: str
    filename: str | None


class PartData(NamedTuple):
    """More data of the current part."""

    data: bytes


class PartEnd(NamedTuple):
    """The current part is complete."""


FormEvent = PartBegin | PartData | PartEnd


class FormParser:
    """Turns the bytes of a form into events; `feed` them in any pieces, then call `finish`."""

    def __init__(self, content_type: str) -> None:
        """Take the request's content type. Raises FormRefused if it names no boundary."""
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary or len(boundary) > 256:
            raise FormRefused("Its content type is not multipart/form-data with a boundary.")
        self._events: list[FormEvent] = []
        self._headers: dict[bytes, bytes] = {}
        self._field = self._value = b""
        self._num_parts = 0
        self._is_complete = False
        callbacks: Any = {
            "on_part_begin": self._begin_part,
            "on_header_field": self._add_to_field,
            "on_header_value": self._add_to_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }
        self._parser = MultipartParser(boundary, callbacks)

    def feed(self, piece: bytes) -> list[FormEvent]:
        """Return the events in the next piece of the body. Raises FormRefused if the form is not valid."""
        self._events = []
        try:
            self._parser.write(piece)
        except FormParserError:
            raise FormRefused("It is not a valid multipart form.") from None
        return self._events

    def finish(self) -> None:
        """Raise FormRefused unless the form is complete."""
        if not self._is_complete:
            raise FormRefused("The form ends in the middle.")

    def _begin_part(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise FormRefused(f"It has more than {MAX_PARTS} parts.")
        self._headers = {}
        self._field = self._value = b""

    def _add_to_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        name = options.get(b"name")
        if name is None or len(name) > _MAX_NAME_CHARS:
            raise FormRefused("A part of it has no name, or too long a name.")
        filename = options.get(b"filename")
        self._events.append(
            PartBegin(
                name.decode("utf-8", "replace"), None if filename is None else filename.decode("utf-8", "replace")
            )
        )

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(PartData(data[start:end]))

    def _end_part(self) -> None:
        self._events.append(PartEnd())

    def _end(self) -> None:
        self._is_complete = True
