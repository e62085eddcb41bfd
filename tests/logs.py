"""What a logger says during a test, also one whose lines reach no handler above it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lines_of(logger: logging.Logger, form: str = "%(message)s") -> Iterator[list[str]]:
    """Yield the lines that the logger has written since, from INFO on, in this form."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(logging.Formatter(form))
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
