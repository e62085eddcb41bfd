"""The errors that clients get, with their status and their message, and how they look on the wire.

    ApiError                        500  the service failed; a bug unless a class below says otherwise
    ├── BadRequest                  400  the body or a parameter is at fault; `code` names the rule
    │   ├── UnparsableBody          400  the body is not a JSON object
    │   ├── ContextLengthExceeded   400  prompt and answer do not fit into the model's context
    │   └── UnknownPreviousResponse 400  `previous_response_id` names nothing
    ├── Unauthenticated             401  no API key was sent
    │   ├── InvalidKey              401  the API key is unknown, revoked or expired
    │   └── KeyRevoked              401  the API key was revoked while the answer was generated
    ├── PermissionDenied            403  the API key may not do this
    │   ├── RetentionForbids        403  the API key's retention policy does not allow it
    │   └── WrongRegion             403  the API key is bound to other regions
    ├── NotFound                    404  nothing here under that id or path
    │   ├── ModelNotFound           404  no such model, or none that this key may use
    │   └── UnknownUrl              404  no such path
    ├── MethodNotAllowed            405  the path exists, not with this method
    ├── ReceiveTimeout              408  the body did not arrive in time
    ├── Conflict                    409  the object is in a state that forbids this
    ├── BodyTooLarge                413  the body is over the limit
    ├── RangeNotSatisfiable         416  the requested range begins beyond the end
    ├── UnsupportedMediaType        415  the body is compressed
    └── ClientGone                  499  the client cancelled the request

`capacity` has the errors of limits, quotas and outages: 429, 503 and 507. A message tells the client what was wrong,
then what to do. It contains no class names, paths or secrets, and of the request only short values.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import TypedDict

SERVER_ERROR_MESSAGE = (
    "The server had an error processing your request. Sorry about that! You can retry your request, or contact the "
    "operator with the request ID from the x-request-id header if the error persists."
)
_NEW_KEY = "Operators create one with `manta keys create` or in the console."


def shorten(text: str) -> str:
    """Return a client's value in a form that can be shown: 64 printable characters at most."""
    shown = text if len(text) <= 64 else text[:61] + "..."
    return shown if shown.isprintable() else "".join(c if c.isprintable() else "?" for c in shown)


class ErrorObject(TypedDict):
    """The object under "error"."""

    message: str
    type: str
    param: str | None
    code: str | None


class WireError(TypedDict):
    """The body of an error answer, of a stream's error event and of a failed batch line."""

    error: ErrorObject


class ApiError(Exception):
    """The service failed to carry out a request.

    `status` is the HTTP status; below 500 an error is an "invalid_request_error", unless its class says otherwise.
    `headers` belong to this error alone; their names are in lower case. `limit` is the name of the limit that refused
    the request, None if no limit did.
    """

    status: ClassVar[int] = 500
    default_type: ClassVar[str] = "server_error"

    def __init_subclass__(cls) -> None:
        if cls.status < 500 and cls.default_type == "server_error":
            cls.default_type = "invalid_request_error"

    def __init__(
        self,
        message: str = SERVER_ERROR_MESSAGE,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.type = self.default_type
        self.headers: dict[str, str] = dict(headers or {})
        self.limit: str | None = None

    def to_wire(self) -> WireError:
        """Return the JSON body; all four keys are always there."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class BadRequest(ApiError):
    """The body or a parameter is at fault."""

    status = 400


def invalid_value(message: str, param: str | None) -> BadRequest:
    """Return the error of a field with a value that it cannot have."""
    return BadRequest(message, param=param, code="invalid_value")


class UnparsableBody(BadRequest):
    """The body is not a JSON object; `reason` is a sentence on why, without any of the body."""

    def __init__(self, reason: str = "") -> None:
        advice = (
            "(HINT: This likely means you aren't using your HTTP library correctly. The service expects a JSON "
            "payload, but what was sent was not valid JSON.)"
        )
        super().__init__(" ".join(filter(None, ["We could not parse the JSON body of your request.", reason, advice])))


class ContextLengthExceeded(BadRequest):
    """Prompt and answer together are longer than the model's context. Lengths are in tokens; None is unknown."""

    def __init__(self, param: str, limit: int, num_tokens: int | None, is_lower_bound: bool = False) -> None:
        length = "more" if num_tokens is None else f"{'at least ' if is_lower_bound else ''}{num_tokens}"
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, your {param} resulted in {length} "
            f"tokens, with the requested output. Please reduce the length of the {param} or of the output.",
            param=param,
            code="context_length_exceeded",
        )


class UnknownPreviousResponse(BadRequest):
    """`previous_response_id` names no response of this account."""

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"Previous response with id '{shorten(response_id)}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )


class Unauthenticated(ApiError):
    """No API key was sent."""

    status = 401

    def __init__(self, message: str | None = None, *, code: str | None = None) -> None:
        super().__init__(
            message
            or "You didn't provide an API key. You need to provide your API key in an Authorization header using "
            "Bearer auth (i.e. Authorization: Bearer YOUR_KEY). Ask the operator of this service for a key. "
            f"{_NEW_KEY}",
            code=code,
            headers={"www-authenticate": "Bearer"},
        )


class InvalidKey(Unauthenticated):
    """The API key is unknown, revoked or expired; the message shows only its ends, and nothing of a short one."""

    def __init__(self, secret: str) -> None:
        shown = "***" if len(secret) < 16 else f"{shorten(secret[:5])}***{shorten(secret[-4:])}"
        super().__init__(
            f"Incorrect API key provided: {shown}. Ask the operator of this service for a valid key. {_NEW_KEY}",
            code="invalid_api_key",
        )


class KeyRevoked(Unauthenticated):
    """The API key was revoked or has expired while the answer was generated."""

    def __init__(self) -> None:
        super().__init__(
            "This API key was revoked or has expired while the answer was generated. Ask the operator of this service "
            f"for a valid key. {_NEW_KEY}",
            code="invalid_api_key",
        )


class PermissionDenied(ApiError):
    """The API key may not do this."""

    status = 403


class RetentionForbids(PermissionDenied):
    """The API key's retention policy does not allow `what` to be kept."""

    def __init__(self, what: str, param: str | None = None) -> None:
        super().__init__(
            f"This API key's retention policy does not allow {what}. Use a key with another retention policy, or ask "
            "the operator to change it.",
            param=param,
            code="retention_policy",
        )


class WrongRegion(PermissionDenied):
    """The API key is bound to other regions than the one that was asked."""

    def __init__(self) -> None:
        super().__init__(
            "This API key is bound to another region. Send the request to the address of that region.",
            code="wrong_region",
        )


class NotFound(ApiError):
    """Nothing that this account may see has that id."""

    status = 404


class ModelNotFound(NotFound):
    """There is no such model, or none that this key may use; perhaps another one that it may use was `meant`."""

    def __init__(self, model: str, meant: str | None = None) -> None:
        advice = f"Did you mean `{meant}`?" if meant else "GET /v1/models lists the models of this key."
        super().__init__(
            f"The model `{shorten(model)}` does not exist or you do not have access to it. {advice}",
            param="model",
            code="model_not_found",
        )


class UnknownUrl(NotFound):
    """There is no such path.

    Perhaps the path `meant` was, as when a client's base URL lacks /v1 or has it twice. Without it, a sentence may give
    other `advice`.
    """

    def __init__(self, method: str, path: str, meant: str = "", advice: str = "") -> None:
        if meant:
            is_missing = len(meant) > len(path)
            base = "ends with /v1" if is_missing else "has /v1 once, and that of Anthropic's clients not at all"
            advice = f"Did you mean {shorten(meant)}? The base URL of a client {base}."
        hint = f". {advice}" if advice else ""
        super().__init__(f"Invalid URL ({shorten(method)} {shorten(path)}){hint}", code="unknown_url")


class MethodNotAllowed(ApiError):
    """The path exists, but not with this method; it has the `allowed` ones."""

    status = 405

    def __init__(self, method: str, path: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(
            f"Not allowed to {shorten(method)} on {shorten(path)}. (HINT: Perhaps you meant to use a different HTTP "
            "method?)",
            headers={"allow": ", ".join(allowed)} if allowed else None,
        )


class ReceiveTimeout(ApiError):
    """The body did not arrive in time."""

    status = 408

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            f"The body of your request did not arrive within {timeout_s:g} seconds. Please send it faster.",
            headers={"connection": "close"},
        )


class Conflict(ApiError):
    """The object is in a state that forbids this; a header keeps clients from retrying by themselves."""

    status = 409

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param, code=code, headers={"x-should-retry": "false"})


class BodyTooLarge(ApiError):
    """The body, or the uploaded file that `param` names, is over the limit."""

    status = 413

    def __init__(self, limit_bytes: int, param: str | None = None) -> None:
        super().__init__(
            f"The body of your request is larger than the limit of {limit_bytes} bytes. Please send less.",
            param=param,
            headers={"connection": "close"},
        )


class RangeNotSatisfiable(ApiError):
    """The requested range begins beyond the end of the file."""

    status = 416

    def __init__(self, num_bytes: int) -> None:
        super().__init__(
            f"The file has {num_bytes} bytes; the requested range is not among them.",
            headers={"content-range": f"bytes */{num_bytes}"},
        )


class UnsupportedMediaType(ApiError):
    """The body is compressed; the header names the encodings that are accepted."""

    status = 415

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"Unsupported content encoding: {shorten(encoding)}. Please send the body as it is, without the header "
            "'content-encoding'.",
            code="unsupported_media_type",
            headers={"accept-encoding": "identity"},
        )


class ClientGone(ApiError):
    """The client cancelled the request; only the log sees this error."""

    status = 499

    def __init__(self) -> None:
        super().__init__("The request was cancelled by the client.", code="request_cancelled")
