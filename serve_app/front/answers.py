"""What HAProxy answers by itself: errors in the shape of all others, as whole HTTP answers in files.

What it cannot read as HTTP at all it refuses with a page of its own, which no setting changes.
"""

import json
from http import HTTPStatus
from pathlib import Path

from serve_app.errors.api import ApiError, BadRequest, NotFound, ReceiveTimeout
from serve_app.errors.capacity import Unavailable
from serve_app.front.files import write_private

LIVE = '{"status":"ok"}'
NOT_HERE = json.dumps(
    NotFound("Invalid URL. Operators read metrics elsewhere: see the page on monitoring.", code="unknown_url").to_wire()
)
LONGEST_URL = 60_000
"""In bytes. A replica's server would refuse one of 65,536 without a word that a client reads."""
URL_TOO_LONG = json.dumps(BadRequest(f"The URL of your request is longer than {LONGEST_URL} bytes.").to_wire())
NOT_READY = '{"status":"unavailable","checks":{"ingress":false}}'

_AWAY = "The service cannot take your request at the moment. Please retry your request."
_NOT_HTTP = "Your request could not be read: it is not valid HTTP, its headers are too large, or its body broke off."


def write_answers(folder: Path, receive_timeout_s: float) -> dict[int, Path]:
    """Write the answer to each status that HAProxy may give into a file; return the files.

    A failed connection to a replica is HAProxy's 502, 503 or 504, and for clients one and the same 503.
    """
    away = Unavailable(_AWAY)
    errors: dict[int, ApiError] = {
        400: BadRequest(_NOT_HTTP),
        408: ReceiveTimeout(receive_timeout_s),
        500: ApiError(),
        502: away,
        503: away,
        504: away,
    }
    paths = {}
    for status, error in errors.items():
        paths[status] = folder / f"{status}.http"
        write_private(paths[status], render_answer(error).decode())  # Another process may be reading it.
    return paths


def render_answer(error: ApiError) -> bytes:
    """Return an error as the bytes of an HTTP/1.1 answer that ends its connection."""
    body = json.dumps(error.to_wire()).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        "cache-control": "no-store",
        **error.headers,
    }
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}", *map(": ".join, headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body
