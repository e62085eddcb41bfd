"""The peers of one run. Only the one being measured may take processor time.

An idle Ray cluster takes about a fifth of a core, so peers are either halted between their turns (the default) or
ended and started again.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console

from tests.tools.bench.measure import drive
from tests.tools.bench.peers import Model, Peer, PeerSpec, start_peer, stop_peer
from tests.tools.bench.prompts import Shape

SETTLE_S = 2.0


class Lineup:
    """A context in which each peer can be had in turn; leaving it ends them all."""

    def __init__(
        self, specs: Sequence[PeerSpec], directory: Path, model: Model, console: Console, restart: bool
    ) -> None:
        self.labels = [spec.label for spec in specs]
        self.restart = restart
        self._specs = {spec.label: spec for spec in specs}
        self._directory = directory
        self._model = model
        self._console = console
        self._peers: dict[str, Peer] = {}
        self._current: str | None = None
        self._num_started = 0

    def __enter__(self) -> "Lineup":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for label in [*self._peers]:
            self._end(label)

    def use(self, label: str) -> Peer:
        """Return a peer that runs and answers, while all others stand still.

        Raises:
            PeerFailed: it could not be started.
        """
        if self._current == label:
            return self._peers[label]
        self._put_aside()
        peer = self._peers.get(label)
        if peer is None:
            peer = self._start(label)
        elif peer.tree is not None:
            peer.tree.resume()
        self._current = label
        time.sleep(SETTLE_S)
        drive(peer, Shape(8, 8, is_stream=True, may_stop=True), 32, 8, f"settle {label}")
        return peer

    def _put_aside(self) -> None:
        if self._current is None:
            return
        tree = self._peers[self._current].tree
        if self.restart:
            self._end(self._current)
        elif tree is not None:
            tree.pause()
        self._current = None

    def _start(self, label: str) -> Peer:
        began = time.monotonic()
        peer = start_peer(self._specs[label], self._num_started, self._directory, self._model)
        self._num_started += 1
        self._peers[label] = peer
        self._console.print(f"{label} answers after {time.monotonic() - began:.0f} s", style="dim")
        return peer

    def _end(self, label: str) -> None:
        stop_peer(self._peers.pop(label))
