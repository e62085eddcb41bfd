"""Texts of errors: a client's own words made fit to be shown, durations, secrets with only their ends."""

import math

_MAX_SHOWN_CHARS = 64


def retry_headers(wait_s: float) -> dict[str, str]:
    """Return the headers that tell a client when to come back, in whole seconds and in milliseconds, rounded up."""
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


def shorten(text: str) -> str:
    """Return a client's scalar fit to be shown: at most 64 characters, none of them a control character."""
    shown = text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."
    return shown if shown.isprintable() else "".join(c if c.isprintable() else "?" for c in shown)


def mask(secret: str) -> str:
    """Return a secret with only its ends showing, or nothing of it when it is too short for that."""
    return "***" if len(secret) < 16 else f"{shorten(secret[:5])}***{shorten(secret[-4:])}"
