"""The errors of limits, quotas and outages: the service cannot take a request now, or no more of an account's.

ApiError
├── RateLimited                 429  the key's minute is used up
├── QuotaExceeded               429  the account's quota is used up
├── ResourceUnavailable         429  there is no place for a flex request
├── SignInLimited               429  too many sign-ins to the console have failed
├── ToolOff                     503  a tool lacks something on the service's machines
├── Unavailable                 503  a part of the service is away; try again
│   ├── EngineOverloaded        503  the engine has no free place
│   └── StoresAway              503  the database or the object store is away
│       └── NoPrimary           503  no server of the database takes writes
└── InsufficientStorage         507  there is no room left to store it
"""

import math
from collections.abc import Mapping
from typing import ClassVar

from deployments.limits.contract import Denied
from serve_app.errors.api import ApiError, shorten

_NEXT_PRIMARY_S = 15.0
"""A failover takes 20 seconds or little more. Requests are refused after eight, so a retry finds the next primary."""
STORED_FILES_AWAY = "Stored files cannot be reached right now. Please retry your request."


def retry_headers(wait_s: float) -> dict[str, str]:
    """Return the headers that tell a client when to retry, in seconds and in milliseconds, rounded up."""
    return {"retry-after": str(max(1, math.ceil(wait_s))), "retry-after-ms": str(max(1, math.ceil(wait_s * 1000)))}


def render_duration(seconds: float) -> str:
    """Return a time as Go prints it, to the millisecond, rounded up: "12ms", "1.146s", "6m0s", "1h0m0s"."""
    total_ms = math.ceil(max(seconds, 0.0) * 1000 - 1e-6)
    if total_ms < 1000:
        return f"{total_ms}ms" if total_ms else "0s"
    whole_s, ms = divmod(total_ms, 1000)
    fraction = f".{ms:03d}".rstrip("0") if ms else ""
    hours, rest_s = divmod(whole_s, 3600)
    minutes, secs = divmod(rest_s, 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if hours or minutes else "", f"{secs}{fraction}s"]
    return "".join(parts)


class RateLimited(ApiError):
    """The key's minute is used up, or is too small for the request."""

    status = 429
    default_type = "requests"
    _UNITS: ClassVar[Mapping[str, str]] = {
        "requests": "requests per min (RPM)",
        "tokens": "tokens per min (TPM)",
        "calls": "calls per min, other than to models",
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
        super().__init__(message, code="rate_limit_exceeded", headers=headers)
        self.type = "tokens" if denied.dimension == "tokens" else "requests"
        self.limit = f"{denied.dimension}_per_minute"


class QuotaExceeded(ApiError):
    """The account's quota or another of its limits is used up; a retry does not help."""

    status = 429
    default_type = "insufficient_quota"

    def __init__(self, message: str = "", code: str = "insufficient_quota") -> None:
        message = message or "You exceeded your current quota. Please ask the operator for more."
        super().__init__(message, code=code, headers={"x-should-retry": "false"})


class SignInLimited(ApiError):
    """Too many sign-ins to the console have failed; the next is accepted in `wait_s` seconds."""

    status = 429
    default_type = "rate_limit_error"

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            f"Too many sign-ins have failed. Please wait for {render_duration(wait_s)}, then try again.",
            headers=retry_headers(wait_s),
        )


class ResourceUnavailable(ApiError):
    """There is no place for a flex request; nothing was charged."""

    status = 429
    default_type = "resource_unavailable"

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__(
            "Resource unavailable: the model has no place for flex requests right now. Please try again later, or "
            "leave 'service_tier' out.",
            code="resource_unavailable",
            headers=retry_headers(retry_after_s),
        )


class Unavailable(ApiError):
    """A part of the service is away; a retry in `retry_after_s` seconds may help."""

    status = 503

    def __init__(self, message: str, retry_after_s: float = 1.0, code: str | None = None) -> None:
        super().__init__(message, code=code, headers=retry_headers(retry_after_s))


class ToolOff(ApiError):
    """A tool lacks something on the service's machines; a retry does not help."""

    status = 503

    def __init__(self, message: str) -> None:
        super().__init__(message, code="tool_off", headers={"x-should-retry": "false"})


class EngineOverloaded(Unavailable):
    """The engine has no free place."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__("The engine is currently overloaded, please try again later.", retry_after_s)


class StoresAway(Unavailable):
    """The database or the object store is away, or refused a write."""


class NoPrimary(StoresAway):
    """No server of the database takes writes: a failover is under way, or this region is cut off from the primary."""

    def __init__(self) -> None:
        super().__init__(
            "The database takes no writes right now: it has no primary, or this region is cut off from it. Requests "
            "that need no database still work. Please retry your request.",
            retry_after_s=_NEXT_PRIMARY_S,
            code="database_without_primary",
        )


class InsufficientStorage(ApiError):
    """There is no room left to store it; nothing was kept."""

    status = 507

    def __init__(self, message: str = "There is no room left to store this.") -> None:
        super().__init__(
            f"{message} Delete files you no longer need, or ask the operator.", code="insufficient_storage"
        )
