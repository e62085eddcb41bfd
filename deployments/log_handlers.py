"""Keeps Serve's log handlers open in a replica whose libraries set up their own logging.

`logging.config.dictConfig` closes every handler of the process first, also those of loggers that its configuration does
not name, and importing vLLM calls it. Serve's handler loses its file by that. The replica's Serve log ends there, and a
Serve controller that restarts asks the replica for the name of the file, gets an error, and replaces the replica.
"""

import logging
import logging.config
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from typing import Any


class AdditiveConfigurator(logging.config.DictConfigurator):
    """Sets up the loggers that a configuration names, and leaves the handlers of all others as they are.

    Other loggers are disabled only where the configuration says so. Python's default is to disable them, and vLLM's own
    example for VLLM_LOGGING_CONFIG_PATH leaves it at that.
    """

    def configure(self) -> None:
        """Apply the configuration.

        Raises:
            ValueError: it is wrong; the message names the part.
        """
        self.config.setdefault("disable_existing_loggers", False)
        with logging._lock:  # type: ignore[attr-defined]
            # What is closed is what this list refers to, weakly; it is also what is flushed when the process ends.
            registered = logging._handlerList  # type: ignore[attr-defined]
            in_use = _handlers_beside(self.config)
            kept = [reference for reference in registered if reference() in in_use]
            registered[:] = [reference for reference in registered if reference() not in in_use]
            try:
                super().configure()
            finally:
                registered[:0] = kept


def keep_handlers_open() -> None:
    """Have `dictConfig` leave the handlers of loggers that it is not asked about open, in this process from now on."""
    logging.config.dictConfigClass = AdditiveConfigurator  # Python's documented place for it.


def _handlers_beside(config: dict[str, Any]) -> set[logging.Handler]:
    """Return the handlers of the loggers that a configuration does not name."""
    named = {logging.getLogger(name) for name in config.get("loggers", ())}
    if "root" in config:
        named.add(logging.root)
    known = [logging.root, *logging.root.manager.loggerDict.values()]
    others = [logger for logger in known if isinstance(logger, logging.Logger) and logger not in named]
    return {handler for logger in others for first in logger.handlers for handler in _with_targets(first)}


def _with_targets(handler: logging.Handler | None) -> Iterator[logging.Handler]:
    """Yield a handler, and those that it passes its records on to."""
    while handler is not None:
        yield handler
        handler = handler.target if isinstance(handler, MemoryHandler) else None
