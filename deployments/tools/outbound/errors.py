"""The errors of requests to the outside. Each is an error of httpx2, so clients that are built on it know them.

OutboundError
  AddressRefused     it leads, or would lead, where the service may not go
  AnswerTooLarge     more came than is taken
  AnswerUnreadable   it is encoded in a way that is not taken, or the encoding is broken
  NoAnswer           the network, the other side or the time did not allow for one
"""

import httpx2


class OutboundError(httpx2.TransportError):
    """A request to the outside failed; `message` says why, for clients and models to read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class AddressRefused(OutboundError):
    """The service may not send requests to the address."""


class AnswerTooLarge(OutboundError):
    """The answer is longer than what is taken."""


class AnswerUnreadable(OutboundError):
    """The answer is encoded in a way that is not taken, or its encoding is broken."""


class NoAnswer(OutboundError):
    """No answer came: the host is unknown, no process listens, the connection broke, or it took too long."""
