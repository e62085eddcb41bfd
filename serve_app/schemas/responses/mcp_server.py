"""The address of a remote MCP server, and the headers that are sent to it; errors never contain their values."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from serve_app.schemas.base import refusal

MAX_HEADERS = 64
MAX_HEADER_CHARS = 16_384
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NOT_THEIRS = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return headers that can be sent; errors never contain a value."""
    if len(headers) > MAX_HEADERS:
        raise refusal("object_above_max_properties", f"Invalid '{{param}}': expected at most {MAX_HEADERS} headers.")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _NOT_THEIRS:
            raise refusal(
                "invalid_value", "Invalid key in '{param}': one of them is not the name of a header to be sent."
            )
        if len(value) > MAX_HEADER_CHARS or not _HEADER_VALUE.fullmatch(value):
            raise refusal("invalid_value", "Invalid value in '{param}': it cannot be sent as a header.", f".{name}")
    return headers


def _check_authorization(token: str) -> str:
    if len(token) > MAX_HEADER_CHARS or not _HEADER_VALUE.fullmatch(token):
        raise refusal("invalid_value", "Invalid '{param}': it cannot be sent as a header.")
    return token


ServerUrl = Annotated[str, Field(min_length=1, max_length=4096)]
Authorization = Annotated[str, AfterValidator(_check_authorization), Field(min_length=1)]
Headers = Annotated[dict[str, str], AfterValidator(_check_headers)]
