"""Translates any exception into the error that a client gets: the one place for failures of engines and stores.

Called by each door: the HTTP middleware, the streams, the WebSocket and the lines of batches.
"""

from sqlalchemy.exc import DBAPIError

from deployments.models.errors import EngineError
from deployments.state.objects import StoreFull, StoreUnavailable
from serve_app.errors import STORED_FILES_AWAY, ApiError, InsufficientStorage, StoresAway, translate_engine_error

_FULL = ("disk is full", "No space left", "could not extend file")  # SQLite, the system, PostgreSQL.


def translate_error(error: BaseException) -> ApiError | None:
    """Return the client's error for a refusal, an engine's failure or a store's failure; None for anything else."""
    match error:
        case ApiError():
            return error
        case EngineError():
            return translate_engine_error(error)
        case StoreFull():
            return InsufficientStorage()
        case StoreUnavailable():
            return StoresAway(STORED_FILES_AWAY)
        case DBAPIError():
            if any(words in str(error.orig) for words in _FULL):
                return InsufficientStorage()
            return StoresAway("The database cannot be reached right now. Please retry your request.")
        case _:
            return None
