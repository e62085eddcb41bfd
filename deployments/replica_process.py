"""What the process of every Serve replica does first: keep its log file open, and listen on its node's address only."""

import logging
import logging.config
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from typing import Any

import ray


def keep_handlers_open() -> None:
    """Have `dictConfig` keep open, in this process from now on, the handlers of loggers that it does not configure.

    Otherwise it closes every handler of the process first, and importing vLLM calls it. Serve's handler loses its file
    by that: the replica's Serve log ends, and a Serve controller that restarts asks the replica for the name of the
    file, gets an error, and replaces the replica.
    """
    logging.config.dictConfigClass = AdditiveConfigurator  # Python's documented place for it.


def listen_on_own_address() -> None:
    """Have Serve open this replica's port for calls through handles on the node's address only.

    By default it listens on every address of the machine, and Serve has no setting for that. Serve opens the port after
    the deployment's constructor, which calls this.
    """
    from ray._common.tls_utils import add_port_to_grpc_server
    from ray.serve._private import replica  # noqa: TID251 - `Replica._on_initialized` names the address.

    def add_port(server: Any, address: str) -> int:
        host, port = ray.util.get_node_ip_address(), address.rpartition(":")[2]
        number: int = add_port_to_grpc_server(server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return number

    replica.add_port_to_grpc_server = add_port


class AdditiveConfigurator(logging.config.DictConfigurator):
    """Sets up the loggers that a configuration names, and leaves the handlers of all others alone.

    Other loggers are disabled only if the configuration says so. Python disables them by default, and so does vLLM's
    own example for VLLM_LOGGING_CONFIG_PATH.
    """

    def configure(self) -> None:
        """Apply the configuration.

        Raises:
            ValueError: it is wrong; the message names the part.
        """
        self.config.setdefault("disable_existing_loggers", False)
        with logging._lock:  # type: ignore[attr-defined]
            # This list of weak references determines what is closed, and what is flushed when the process ends.
            registered = logging._handlerList  # type: ignore[attr-defined]
            in_use = _handlers_beside(self.config)
            kept = [reference for reference in registered if reference() in in_use]
            registered[:] = [reference for reference in registered if reference() not in in_use]
            try:
                super().configure()
            finally:
                registered[:0] = kept


def _handlers_beside(config: dict[str, Any]) -> set[logging.Handler]:
    named = {logging.getLogger(name) for name in config.get("loggers", ())}
    if "root" in config:
        named.add(logging.root)
    known = [logging.root, *logging.root.manager.loggerDict.values()]
    others = [logger for logger in known if isinstance(logger, logging.Logger) and logger not in named]
    return {handler for logger in others for first in logger.handlers for handler in _with_targets(first)}


def _with_targets(handler: logging.Handler | None) -> Iterator[logging.Handler]:
    """Yield a handler and the handlers that it passes its records on to."""
    while handler is not None:
        yield handler
        handler = handler.target if isinstance(handler, MemoryHandler) else None
