"""The service's logs, one JSON object per line.

The messages of unexpected exceptions are left out: they may quote a request.
"""

import logging
import traceback
from pathlib import PurePath
from types import TracebackType
from typing import TextIO

import orjson

from serve_app.errors.api import ApiError
from serve_app.errors.translate import translate_error

request_logger = logging.getLogger("manta.requests")
error_logger = logging.getLogger("manta.errors")


def log_to(stream: TextIO) -> logging.Handler:
    """Write both logs to a stream from now on; return their handler."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for logger in (request_logger, error_logger):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    return handler


def api_error_for(error: Exception, request_id: str) -> ApiError:
    """Return the client's error for an exception. An unexpected exception is logged and becomes a plain 500."""
    translated = translate_error(error)
    if translated is None:
        log_bug(request_id, error)
        return ApiError()
    return translated


def log_bug(request_id: str, error: BaseException) -> None:
    """Log where an unexpected exception came from, without its message, which may quote a request's content."""
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 5:
        chain.append(f"{type(cause).__module__}.{type(cause).__qualname__} at {_frames(cause.__traceback__)}")
        cause = cause.__cause__ or cause.__context__
    error_logger.error(orjson.dumps({"request_id": request_id, "chain": chain}).decode())


def _frames(trace: TracebackType | None) -> str:
    frames = traceback.walk_tb(trace)
    places = [f"{PurePath(f.f_code.co_filename).name}:{line} {f.f_code.co_name}" for f, line in frames]
    return " > ".join(places[-20:])
