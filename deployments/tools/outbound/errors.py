"""The errors of requests to the outside. All are errors of httpx2, so clients that use it know them.

OutboundError
  AddressRefused     the service may not go there
  AnswerTooLarge     the answer is longer than the limit
  AnswerUnreadable   the answer has an unknown encoding, or a broken one
  NoAnswer           the network, the other side or the time did not allow an answer
"""

import httpx2


class OutboundError(httpx2.TransportError):
    """A request to the outside failed; `message` has the reason, for clients and models."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class AddressRefused(OutboundError):
    """The service may not send requests to the address."""


class AnswerTooLarge(OutboundError):
    """The answer is longer than the limit."""


class AnswerUnreadable(OutboundError):
    """The answer has an unknown encoding, or a broken one."""


class NoAnswer(OutboundError):
    """No answer came: the host is unknown, no process listens, the connection broke, or it took too long."""
