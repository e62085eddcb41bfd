"""What can go wrong between an operation and an engine, as values that cross process boundaries.

    EngineError
    ├── RequestRejected   the request is at fault; asking again changes nothing
    ├── Overloaded        the engine is healthy and full; asking again later helps
    ├── EngineDied        the replica or its engine went away while the request ran
    └── Cancelled         the caller took the request back

Nothing here knows HTTP; `serve_app.errors` translates, once.
"""

import json


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

    def __reduce__(self) -> tuple[type["RequestRejected"], tuple[str, str | None, str | None]]:
        return type(self), (self.message, self.param, self.code)


class Overloaded(EngineError):
    """Every place in the engine is taken; `retry_after_s` is a guess at when one is free, in seconds."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type["Overloaded"], tuple[str, float]]:
        return type(self), (self.message, self.retry_after_s)


class EngineDied(EngineError):
    """The replica went away while it ran the request."""


class Cancelled(EngineError):
    """The caller cancelled the request."""


_KINDS: dict[str, type[EngineError]] = {
    kind.__name__: kind for kind in (EngineError, RequestRejected, Overloaded, EngineDied, Cancelled)
}


def render_error(error: EngineError) -> bytes:
    """Return an error as a JSON array: its class, then what the class is made from."""
    kind = type(error).__name__
    return json.dumps([kind if kind in _KINDS else "EngineError", *error.__reduce__()[1]]).encode()


def parse_error(rendered: bytes) -> EngineError:
    """Return the error that `render_error` wrote."""
    kind, *arguments = json.loads(rendered)
    return _KINDS[kind](*arguments)
