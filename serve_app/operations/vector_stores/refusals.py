"""The errors that clients get about vector stores."""

from collections.abc import Iterator
from contextlib import contextmanager

from deployments.state.vector_stores.rows import (
    StoreBatchMissing,
    StoreFileMissing,
    StoreFull,
    StoreHasExpired,
    StoreMissing,
)
from serve_app.errors.api import BadRequest, NotFound, shorten
from serve_app.errors.capacity import QuotaExceeded

EXPIRED = "vector_store_expired"


@contextmanager
def translated(store_id: str, other_id: str = "", most: int = 0, param: str | None = None) -> Iterator[None]:
    """Context manager that translates errors of vector stores into API errors.

    `other_id` is the id of a file or a batch in the store, `most` how many files it may hold.

    Raises:
        NotFound: there is no such store, file or batch.
        BadRequest: the store has expired.
        QuotaExceeded: there would be too many files in it.
    """
    try:
        yield
    except StoreMissing:
        raise no_store(store_id, param) from None
    except StoreFileMissing:
        raise NotFound(f"No file found with id '{shorten(other_id)}' in this vector store.") from None
    except StoreBatchMissing:
        raise NotFound(f"No file batch found with id '{shorten(other_id)}' in this vector store.") from None
    except StoreHasExpired:
        raise expired(store_id, param) from None
    except StoreFull:
        raise QuotaExceeded(
            f"A vector store holds at most {most} files. Remove some, or use another store.",
            code="too_many_vector_store_files",
        ) from None


def no_store(store_id: str, param: str | None = None) -> NotFound:
    """Return the error for a store that does not exist."""
    return NotFound(f"Vector store with id '{shorten(store_id)}' not found.", param=param)


def expired(store_id: str, param: str | None = None) -> BadRequest:
    """Return the error for a store that has expired."""
    return BadRequest(
        f"Vector store with id '{shorten(store_id)}' has expired, and nothing is in it any more. Create a new one.",
        param=param,
        code=EXPIRED,
    )


def too_many_stores(most: int) -> QuotaExceeded:
    """Return the error for an account that has `most` vector stores already."""
    return QuotaExceeded(
        f"You have {most} vector stores, as many as you may. Delete those that you no longer need.",
        code="too_many_vector_stores",
    )
