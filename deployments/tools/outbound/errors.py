"""Why a request to the outside came to nothing. Each is an error of httpx2, so clients built on that know it.

OutboundError
  AddressRefused     it leads, or would lead, where the service may not go
  AnswerTooLarge     more came than is taken
  AnswerUnreadable   it is encoded in a way that is not taken, or the encoding is broken
  NoAnswer           the network, the other side or the time did not allow for one
"""

import httpx2


class OutboundError(httpx2.TransportError):
    """A request to the outside came to nothing; `message` says why, for callers and models to read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class AddressRefused(OutboundError):
    """The address is not one that the service goes to."""


class AnswerTooLarge(OutboundError):
    """The answer is longer than what is taken."""


class AnswerUnreadable(OutboundError):
    """The answer is encoded in a way that is not taken, or its encoding is broken."""


class NoAnswer(OutboundError):
    """No answer came: the host is unknown, nobody listens, the connection broke, or it took too long."""
