"""Every error that a client can meet, with its status, its words and its one way onto the wire.

    ApiError                        500  the service failed; a bug unless a class below says otherwise
    ├── BadRequest                  400  the body or a parameter is at fault; `code` names the rule
    │   ├── UnparsableBody          400  the body is not a JSON object
    │   ├── ContextLengthExceeded   400  prompt and answer do not fit into the model's context
    │   └── UnknownPreviousResponse 400  `previous_response_id` names nothing
    ├── Unauthenticated             401  no API key was sent
    │   ├── InvalidKey              401  the API key is unknown, revoked or expired
    │   └── KeyRevoked              401  the API key stopped being valid while the answer was made
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
    ├── RangeNotSatisfiable         416  the range asked for begins beyond the end
    ├── UnsupportedMediaType        415  the body is compressed
    ├── RateLimited                 429  the key's minute is used up
    ├── QuotaExceeded               429  the account's quota is used up
    ├── ResourceUnavailable         429  there is no place for a flex request
    ├── SignInLimited               429  too many sign-ins to the console have failed
    ├── ClientGone                  499  the client took the request back
    ├── Unavailable                 503  something the service needs is away; try again
    │   ├── EngineOverloaded        503  every place in the engine is taken
    │   └── StoresAway              503  the database or the object store is away
    │       └── NoPrimary           503  no server of the database takes writes
    └── InsufficientStorage         507  there is no room left to store it

A message is written for the client: what was wrong, then what to do. It never holds request content beyond
a short scalar, nor class names, paths or secrets. Nothing here knows the web framework.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import TypedDict

from deployments.limits.contract import Denied
from serve_app.errors.text import mask, render_duration, retry_headers, shorten

SERVER_ERROR_MESSAGE = (
    "The server had an error processing your request. Sorry about that! You can retry your request, or contact the "
    "operator with the request ID from the x-request-id header if the error persists."
)
_NEXT_PRIMARY_S = 15.0
"""The next primary is there after 20 seconds or little more. Requests are refused after eight: their retry finds it."""
STORED_FILES_AWAY = "Stored files cannot be reached right now. Please retry your request."


class ErrorObject(TypedDict):
    """What stands under "error" in every answer that reports one."""

    message: str
    type: str
    param: str | None
    code: str | None


class WireError(TypedDict):
    """The body of an error answer, of a stream's error event and of a failed batch line."""

    error: ErrorObject


class ApiError(Exception):
    """The service failed to carry out a request.

    `status` is the HTTP status, `headers` are those that belong to this error alone, in lower case.
    """

    status: ClassVar[int] = 500
    default_type: ClassVar[str] = "server_error"

    def __init__(
        self,
        message: str = SERVER_ERROR_MESSAGE,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.type = type or self.default_type
        self.headers: dict[str, str] = dict(headers or {})

    def to_wire(self) -> WireError:
        """Return the JSON body; all four keys are always there."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class BadRequest(ApiError):
    """The body or a parameter is at fault; asking again changes nothing."""

    status = 400
    default_type = "invalid_request_error"


class UnparsableBody(BadRequest):
    """The body is not a JSON object; `reason` is a sentence on why, without any of the body."""

    def __init__(self, reason: str = "") -> None:
        advice = (
            "(HINT: This likely means you aren't using your HTTP library correctly. The service expects a JSON "
            "payload, but what was sent was not valid JSON.)"
        )
        super().__init__(" ".join(filter(None, ["We could not parse the JSON body of your request.", reason, advice])))


class ContextLengthExceeded(BadRequest):
    """Prompt and answer together are longer than the model's context. Lengths are in tokens, None if unknown."""

    def __init__(self, param: str, limit: int, num_tokens: int | None, is_lower_bound: bool = False) -> None:
        length = "more" if num_tokens is None else f"{'at least ' if is_lower_bound else ''}{num_tokens}"
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, your {param} resulted in {length} "
            f"tokens, with the output that was asked for. Please reduce the length of the {param} or of the output.",
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
    default_type = "invalid_request_error"

    def __init__(self, message: str | None = None, *, code: str | None = None) -> None:
        super().__init__(
            message
            or "You didn't provide an API key. You need to provide your API key in an Authorization header using "
            "Bearer auth (i.e. Authorization: Bearer YOUR_KEY). Ask the operator of this service for a key.",
            code=code,
            headers={"www-authenticate": "Bearer"},
        )


class InvalidKey(Unauthenticated):
    """The API key is unknown, revoked or expired; the message shows its ends only."""

    def __init__(self, secret: str) -> None:
        super().__init__(
            f"Incorrect API key provided: {mask(secret)}. Ask the operator of this service for a valid key.",
            code="invalid_api_key",
        )


class KeyRevoked(Unauthenticated):
    """The API key was revoked, or expired, while the answer was made."""

    def __init__(self) -> None:
        super().__init__(
            "This API key was revoked or has expired while the answer was made. Ask the operator of this service for a "
            "valid key.",
            code="invalid_api_key",
        )


class PermissionDenied(ApiError):
    """The API key may not do this."""

    status = 403
    default_type = "invalid_request_error"


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
    default_type = "invalid_request_error"


class ModelNotFound(NotFound):
    """There is no such model, or none that this key may use."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The model `{shorten(model)}` does not exist or you do not have access to it.",
            param="model",
            code="model_not_found",
        )


class UnknownUrl(NotFound):
    """There is no such path."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"Invalid URL ({shorten(method)} {shorten(path)})", code="unknown_url")


class MethodNotAllowed(ApiError):
    """The path exists, but not with this method; `allowed` are those that it has."""

    status = 405
    default_type = "invalid_request_error"

    def __init__(self, method: str, path: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(
            f"Not allowed to {shorten(method)} on {shorten(path)}. (HINT: Perhaps you meant to use a different HTTP "
            "method?)",
            headers={"allow": ", ".join(allowed)} if allowed else None,
        )


class ReceiveTimeout(ApiError):
    """The body did not arrive in time."""

    status = 408
    default_type = "invalid_request_error"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            f"The body of your request did not arrive within {timeout_s:g} seconds. Please send it faster.",
            headers={"connection": "close"},
        )


class Conflict(ApiError):
    """The object is in a state that forbids this; a header keeps clients from retrying by themselves."""

    status = 409
    default_type = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param, code=code, headers={"x-should-retry": "false"})


class BodyTooLarge(ApiError):
    """The body, or the uploaded file that `param` names, is over the limit."""

    status = 413
    default_type = "invalid_request_error"

    def __init__(self, limit_bytes: int, param: str | None = None) -> None:
        super().__init__(
            f"The body of your request is larger than the limit of {limit_bytes} bytes. Please send less.",
            param=param,
            headers={"connection": "close"},
        )


class RangeNotSatisfiable(ApiError):
    """The range that is asked for begins beyond the end of the file."""

    status = 416
    default_type = "invalid_request_error"

    def __init__(self, num_bytes: int) -> None:
        super().__init__(
            f"The file has {num_bytes} bytes; the range that was asked for is not among them.",
            headers={"content-range": f"bytes */{num_bytes}"},
        )


class UnsupportedMediaType(ApiError):
    """The body is compressed; the header says what is taken."""

    status = 415
    default_type = "invalid_request_error"

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"Unsupported content encoding: {shorten(encoding)}. Please send the body as it is, without the header "
            "'content-encoding'.",
            code="unsupported_media_type",
            headers={"accept-encoding": "identity"},
        )


class RateLimited(ApiError):
    """The key's minute is used up, or could never hold the request; built from the refusal."""

    status = 429
    default_type = "requests"
    _UNITS: ClassVar[Mapping[str, str]] = {
        "requests": "requests per min (RPM)",
        "tokens": "tokens per min (TPM)",
        "calls": "calls per min, to all that is not a model",
    }

    def __init__(self, denied: Denied, organization: str, model: str | None = None) -> None:
        named = f"for {shorten(model)} " if model else ""
        where = f"{named}in organization {organization} on {self._UNITS[denied.dimension]}"
        if denied.retry_after_s is None:
            advice = (
                "The input or output tokens must be reduced in order to run successfully."
                if denied.dimension == "tokens"
                else "Ask the operator for a higher limit."
            )
            message = f"Request too large {where}: Limit {denied.limit}, Requested {denied.requested}. {advice}"
            headers = {"x-should-retry": "false"}
        else:
            wait_s = max(denied.retry_after_s, 0.001)
            message = (
                f"Rate limit reached {where}: Limit {denied.limit}, Used {denied.used}, Requested {denied.requested}. "
                f"Please try again in {render_duration(wait_s)}."
            )
            headers = retry_headers(wait_s)
        kind = "tokens" if denied.dimension == "tokens" else "requests"
        super().__init__(message, code="rate_limit_exceeded", type=kind, headers=headers)


class QuotaExceeded(ApiError):
    """The account's quota is used up, or another bound on what it may have; waiting a little does not help."""

    status = 429
    default_type = "insufficient_quota"

    def __init__(self, message: str = "", code: str = "insufficient_quota") -> None:
        message = message or "You exceeded your current quota. Please ask the operator for more."
        super().__init__(message, code=code, headers={"x-should-retry": "false"})


class SignInLimited(ApiError):
    """Too many sign-ins to the console have failed; the next may come in `wait_s` seconds."""

    status = 429
    default_type = "rate_limit_error"

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            f"Too many sign-ins have failed. Please wait for {render_duration(wait_s)}, then try again.",
            headers=retry_headers(wait_s),
        )


class ResourceUnavailable(ApiError):
    """There is no place for a flex request, which is the first to be refused; nothing was counted."""

    status = 429
    default_type = "resource_unavailable"

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__(
            "Resource unavailable: the model has no place for flex requests right now. Please try again later, or "
            "leave 'service_tier' out.",
            code="resource_unavailable",
            headers=retry_headers(retry_after_s),
        )


class ClientGone(ApiError):
    """The client cancelled the request; only the log sees this error."""

    status = 499
    default_type = "invalid_request_error"

    def __init__(self) -> None:
        super().__init__("The request was cancelled by the client.", code="request_cancelled")


class Unavailable(ApiError):
    """Something that the service needs is away; trying again in `retry_after_s` seconds may help."""

    status = 503

    def __init__(self, message: str, retry_after_s: float = 1.0, code: str | None = None) -> None:
        super().__init__(message, code=code, headers=retry_headers(retry_after_s))


class EngineOverloaded(Unavailable):
    """Every place in the engine is taken."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__("The engine is currently overloaded, please try again later.", retry_after_s)


class StoresAway(Unavailable):
    """The database or the object store is away, or has not taken what was to be kept."""


class NoPrimary(StoresAway):
    """No server of the database takes writes: one is being made the primary, or this region is cut off from it."""

    def __init__(self) -> None:
        super().__init__(
            "The database takes no writes right now: it has no primary, or this region is cut off from it. What needs "
            "no database goes on. Please retry your request.",
            retry_after_s=_NEXT_PRIMARY_S,
            code="database_without_primary",
        )


class InsufficientStorage(ApiError):
    """There is no room left to store what was sent; nothing of it was kept."""

    status = 507

    def __init__(self, message: str = "There is no room left to store this.") -> None:
        super().__init__(
            f"{message} Delete files you no longer need, or ask the operator.", code="insufficient_storage"
        )
