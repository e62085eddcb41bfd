"""The link between two regions, carried by this machine: how long a round trip takes, and what a cut lets through."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.tools.drills.regions.trial import ASKS

ROOT = Path(__file__).parents[4]

pytestmark = [pytest.mark.serve, pytest.mark.exhaustive, pytest.mark.timeout(180)]


def trial(loss: float) -> dict[str, float]:
    needs.drills()
    command = [sys.executable, "-m", "tests.tools.drills.regions.trial", str(loss)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_round_trip_takes_its_time_and_a_cut_lets_nothing_through() -> None:
    seen = trial(0.0)
    assert 0.149 < seen["over_s"] < 0.160
    assert seen["near_s"] < 0.02
    assert seen["answered"] == seen["answered_beside"] == seen["answered_healed"] == ASKS
    assert seen["answered_cut"] == 0


def test_packets_are_lost_by_choice() -> None:
    seen = trial(0.5)
    assert seen["answered"] < ASKS
    assert seen["answered_beside"] == ASKS
