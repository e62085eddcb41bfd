"""Translates failures of engines and stores into the errors that clients get, over HTTP and in batches."""

from sqlalchemy.exc import DBAPIError

from deployments.models.contract.errors import (
    ContextLengthExceeded,
    EngineDied,
    EngineError,
    Overloaded,
    RequestRejected,
)
from deployments.state.database.postgres import lacks_primary
from deployments.state.disk import ReserveReached
from deployments.state.objects.store import StoreFull, StoreUnavailable
from deployments.state.quotas import TooManyItems, TooManyObjects
from serve_app.errors import api
from serve_app.errors.api import ApiError, BadRequest
from serve_app.errors.capacity import (
    STORED_FILES_AWAY,
    EngineOverloaded,
    InsufficientStorage,
    NoPrimary,
    QuotaExceeded,
    StoresAway,
    Unavailable,
)

_FULL = ("disk is full", "No space left", "could not extend file")  # SQLite, the system, PostgreSQL.
_TOO_MANY = (
    "You have {} files, uploads, vector stores and conversations, which is the limit. Delete those you no longer need."
)
_TOO_MANY_ITEMS = (
    "Your responses, chat completions and conversations have reached their storage limit. Delete those you no longer "
    "need, or send 'store': false."
)


def translate_engine_error(error: EngineError) -> ApiError:
    """Return the client's error for an engine's failure."""
    match error:
        case ContextLengthExceeded():
            return api.ContextLengthExceeded(error.param, error.limit, error.num_tokens, error.is_lower_bound)
        case RequestRejected():
            return BadRequest(error.message, param=error.param, code=error.code)
        case Overloaded():
            return EngineOverloaded(error.retry_after_s)
        case EngineDied():
            return Unavailable("The model stopped while it was processing your request. Please retry your request.")
        case _:
            return ApiError()


def translate_error(error: BaseException) -> ApiError | None:
    """Return the client's error for a failure of an engine or a store; None for anything unexpected."""
    match error:
        case ApiError():
            return error
        case EngineError():
            return translate_engine_error(error)
        case TooManyObjects():
            return QuotaExceeded(_TOO_MANY.format(error.max_objects))
        case TooManyItems():
            return QuotaExceeded(_TOO_MANY_ITEMS)
        case ReserveReached():
            return InsufficientStorage("The service's disk is almost full, so it takes nothing new to store.")
        case StoreFull():
            return InsufficientStorage()
        case StoreUnavailable():
            return StoresAway(STORED_FILES_AWAY)
        case DBAPIError():
            if lacks_primary(error):
                return NoPrimary()
            if any(words in str(error.orig) for words in _FULL):
                return InsufficientStorage()
            return StoresAway("The database cannot be reached right now. Please retry your request.")
        case _:
            return None
