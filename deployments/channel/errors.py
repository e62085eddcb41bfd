"""The errors of an answer over the side channel.

    ChannelError    the other end could not carry the request out
    ├── Refused     the request is at fault; asking again changes nothing
    ├── Full        the other end is healthy and at capacity; asking again later helps
    └── Lost        the other end, or the connection to it, went away

Each user of the channel translates these into its own errors; no HTTP client sees them.
"""

import json
from typing import Any


class ChannelError(Exception):
    """The other end could not carry the request out; `message` is a sentence that quotes nothing of the request."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Refused(ChannelError):
    """The request is at fault; `param` names its wrong field, `code` the rule that it broke.

    `details` are JSON values that depend on the code.
    """

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.details = details


class Full(ChannelError):
    """The other end is at capacity; `retry_after_s` estimates, in seconds, when it has room."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Lost(ChannelError):
    """The other end, or the connection to it, went away before the answer was complete."""


_KINDS: dict[str, type[ChannelError]] = {kind.__name__: kind for kind in (ChannelError, Refused, Full, Lost)}


def render_error(error: ChannelError) -> bytes:
    """Return an error as a JSON array: the name of its class, then the arguments of the class."""
    parts: list[Any]
    match error:
        case Refused():
            parts = ["Refused", error.message, error.param, error.code, error.details]
        case Full():
            parts = ["Full", error.message, error.retry_after_s]
        case Lost():
            parts = ["Lost", error.message]
        case _:
            parts = ["ChannelError", error.message]
    return json.dumps(parts).encode()


def parse_error(rendered: bytes) -> ChannelError:
    """Return the error that `render_error` wrote; a plain `ChannelError` where another version knows more kinds."""
    kind, message, *more = json.loads(rendered)
    return _KINDS[kind](message, *more) if kind in _KINDS else ChannelError(message)
