"""The front as a part of `manta serve`: started before the service, kept while it runs, closed before it drains."""

import signal
from collections.abc import Mapping
from pathlib import Path

from serve_app.cli.supervise.process_tree import ProcessTree
from serve_app.front.settings import FrontSettings, supervisor_command


class Front:
    """The front's supervisor as a child process, started anew when it ends."""

    def __init__(self, settings: FrontSettings, environment: Mapping[str, str], log_path: Path) -> None:
        """Start it.

        Raises:
            OSError: its files cannot be written.
        """
        self._command = supervisor_command(settings.save())
        self._environment = environment
        self._log_path = log_path
        self._tree = self._start()

    def keep(self) -> None:
        """Start the supervisor anew where it has ended; what it supervised goes on meanwhile."""
        if self._tree.exit_status is not None:
            self._tree = self._start()

    def close(self) -> None:
        """Take no more requests; those that run may end."""
        self._tree.send(signal.SIGTERM)

    def _start(self) -> ProcessTree:
        return ProcessTree(self._command, self._environment, self._log_path, is_log_kept=True)
