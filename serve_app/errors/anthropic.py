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


def to_anthropic(error: ApiError, request_id: str) -> dict[str, Any]:
    """Return the body of an error answer, and of the event that ends a failed stream."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": request_id}
