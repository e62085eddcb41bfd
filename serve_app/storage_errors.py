"""What a caller is told when the database or the object store fails."""

from sqlalchemy.exc import DBAPIError

from deployments.state.objects import StoreFull, StoreUnavailable
from serve_app.errors import STORED_FILES_AWAY, ApiError, InsufficientStorage, StoresAway

_FULL = ("disk is full", "No space left", "could not extend file")  # SQLite, the system, PostgreSQL.


def translate_storage_error(error: Exception) -> ApiError | None:
    """Return the answer to a failure of what keeps state, None for any other failure."""
    match error:
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
