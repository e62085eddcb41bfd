"""The errors that clients get about containers."""

from collections.abc import Iterator
from contextlib import contextmanager

from deployments.tools.code_interpreter.messages import (
    ContainerFileMissing,
    ContainerGone,
    ContainerRefused,
    InterpreterAway,
)
from serve_app.errors.api import BadRequest, NotFound, shorten
from serve_app.errors.capacity import QuotaExceeded, Unavailable

EXPIRED = "container_expired"


@contextmanager
def translated(container_id: str, file_id: str = "") -> Iterator[None]:
    """Context manager that translates errors of containers into API errors.

    Raises:
        NotFound: the container has ended, or has no such file.
        BadRequest: what was asked of its files cannot be done.
        Unavailable: the code interpreter cannot answer.
    """
    try:
        yield
    except ContainerGone:
        raise expired(container_id) from None
    except ContainerFileMissing:
        raise no_file(file_id) from None
    except ContainerRefused as refused:
        raise BadRequest(refused.message, param="file", code="invalid_value") from None
    except InterpreterAway as away:
        raise Unavailable(away.message, retry_after_s=5.0) from None


def expired(container_id: str, param: str | None = None) -> NotFound:
    """Return the error for a container that has expired."""
    return NotFound(
        f"Container with id '{shorten(container_id)}' has expired, and everything in it is gone. Create a new one.",
        param=param,
        code=EXPIRED,
    )


def no_file(file_id: str) -> NotFound:
    """Return the error for a file that does not exist."""
    return NotFound(f"No such container file: {shorten(file_id)}")


def too_many(most: int) -> QuotaExceeded:
    """Return the error for an account that has `most` containers already."""
    return QuotaExceeded(
        f"You have {most} containers, as many as you may at once. Delete those that you no longer need.",
        code="too_many_containers",
    )
