"""The comparison's loop: each kind of load is measured in every round, and warmed up once for each peer."""

from typing import Any

import pytest
from rich.console import Console

from tests.tools.bench import comparison
from tests.tools.bench.comparison import Plan, run_load
from tests.tools.bench.peers import Peer
from tests.tools.bench.prompts import Target
from tests.tools.bench.routes import Routes


class TwoPeers(Routes):
    """Peers that run already, each with the variables of its process."""

    labels = ["bare", "manta"]
    restart = False

    def __init__(self) -> None:
        self._peers = {label: Peer(label, Target("127.0.0.1", 1, "m"), None, {"A": "1"}) for label in self.labels}

    def use(self, label: str) -> Peer:
        return self._peers[label]


class Seen:
    """What a measurement returns here."""

    requests_per_s, ttft_p50_ms, errors = 1.0, 2.0, 0


def test_each_cell_is_warmed_once_for_each_peer_and_measured_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(peer: Peer, shape: Any, num: int, clients: int, seed: str) -> Seen:
        measured.append(f"{peer.label} {clients} {'warm' if seed.startswith('warm') else 'round'}")
        return Seen()

    monkeypatch.setattr(comparison, "measure", measure)
    monkeypatch.setattr(comparison, "calibrate", lambda peer, tokens: tokens)
    monkeypatch.setattr(comparison, "may_stop", lambda peer, tokens: False)
    plan = Plan(clients=(1, 16), rounds=3, modes=("stream",), prompts=("short",), scale=1)

    results = run_load(TwoPeers(), plan, Console(quiet=True))

    assert {cell.clients: {label: len(runs) for label, runs in by.items()} for cell, by in results.items()} == {
        1: {"bare": 3, "manta": 3},
        16: {"bare": 3, "manta": 3},
    }
    assert {what: measured.count(what) for what in measured} == {
        f"{label} {clients} {kind}": 1 if kind == "warm" else 3
        for label in ("bare", "manta")
        for clients in (1, 16)
        for kind in ("warm", "round")
    }
