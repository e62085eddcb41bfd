"""How errors look to clients of Anthropic's interface."""

from typing import Any

from serve_app.errors.api import ApiError

PATHS = "/v1/messages"
"""The prefix of the paths whose errors look so."""
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}

_NO_THREADS = {"error_code": "thread_unsupported_request"}
"""By this Anthropic's clients know that they have to send the whole conversation each time."""


def to_anthropic(error: ApiError, request_id: str) -> dict[str, Any]:
    """Return the body of an error answer, and of the event that ends a failed stream.

    It has no field for the place of a fault, which the message then begins with, as Anthropic's own do. Clients know a
    prompt that is too long by its message.
    """
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    is_placed = error.param is None or error.param in error.message or error.code == "context_length_exceeded"
    shown: dict[str, Any] = {
        "type": kind,
        "message": error.message if is_placed or error.status != 400 else f"{error.param}: {error.message}",
    }
    if (error.code, error.param) == ("unsupported_parameter", "thread"):
        shown["details"] = _NO_THREADS
    return {"type": "error", "error": shown, "request_id": request_id}
