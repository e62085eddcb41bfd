"""The errors of engines, which cross process boundaries.

    EngineError
    ├── RequestRejected            the request is at fault; asking again changes nothing
    │   └── ContextLengthExceeded  prompt and answer do not fit into the model's context
    ├── Overloaded                 the engine is healthy and full; asking again later helps
    └── EngineDied                 the replica or its engine went away while the request ran

Nothing here knows HTTP; `serve_app.errors` translates, once. Over the side channel they travel as its own errors.
"""

from deployments.channel.errors import ChannelError, Full, Lost, Refused


class EngineError(Exception):
    """An engine did not carry out a request."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestRejected(EngineError):
    """The engine will not run this request; `param` names the field at fault, `code` the rule it broke."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code

    def __reduce__(self) -> tuple[type["RequestRejected"], tuple[object, ...]]:
        return type(self), (self.message, self.param, self.code)


class ContextLengthExceeded(RequestRejected):
    """Prompt and answer together are longer than the model's context; `param` is the field that holds the prompt.

    Both lengths are in tokens. `num_tokens` is None if the engine does not report it, and with `is_lower_bound` the
    engine stopped counting there.
    """

    param: str

    def __init__(self, param: str, limit: int, num_tokens: int | None, is_lower_bound: bool = False) -> None:
        super().__init__(
            f"The model's maximum context length is {limit} tokens; the request has more.",
            param,
            "context_length_exceeded",
        )
        self.limit = limit
        self.num_tokens = num_tokens
        self.is_lower_bound = is_lower_bound

    def __reduce__(self) -> tuple[type["RequestRejected"], tuple[object, ...]]:
        return type(self), (self.param, self.limit, self.num_tokens, self.is_lower_bound)


class Overloaded(EngineError):
    """Every place in the engine is taken; `retry_after_s` is an estimate in seconds."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type["Overloaded"], tuple[str, float]]:
        return type(self), (self.message, self.retry_after_s)


class EngineDied(EngineError):
    """The replica went away while it ran the request."""


def to_channel(error: EngineError) -> ChannelError:
    """Return the error for the side channel."""
    match error:
        case ContextLengthExceeded():
            lengths = {name: getattr(error, name) for name in ("limit", "num_tokens", "is_lower_bound")}
            return Refused(error.message, error.param, error.code, lengths)
        case RequestRejected():
            return Refused(error.message, error.param, error.code)
        case Overloaded():
            return Full(error.message, error.retry_after_s)
        case EngineDied():
            return Lost(error.message)
        case _:
            return ChannelError(error.message)


def from_channel(error: ChannelError) -> EngineError:
    """Return the engine's error for an error of the side channel."""
    match error:
        case Refused(code="context_length_exceeded", details=dict(lengths)):
            return ContextLengthExceeded(error.param or "messages", **lengths)
        case Refused():
            return RequestRejected(error.message, error.param, error.code)
        case Full():
            return Overloaded(error.message, error.retry_after_s)
        case Lost():
            return EngineDied(error.message)
        case _:
            return EngineError(error.message)
