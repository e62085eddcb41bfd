"""Two regions that are drilled with few clients: nothing is lost, wrong or charged twice, whatever dies.

How long clients wait is for `make drills`, on a machine that does nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.tools.drills.judge import Wrong
from tests.tools.drills.regions.database import missing
from tests.tools.drills.regions.table import REGION_DRILLS

pytestmark = [pytest.mark.serve, pytest.mark.exhaustive, pytest.mark.timeout(3600)]

HELD = [drill.name for drill in REGION_DRILLS if drill.is_held]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The round of each row, by its name."""
    needs.drills()
    if why := missing():
        needs.missing(f"the drills of two regions are not run: {why}")
    folder = tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "tests.tools.drills", "--part", "regions", "--quick", "--results", str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
    found = list(folder.glob("*.json"))
    assert found, done.stdout + done.stderr
    return {one["name"]: one for one in json.loads(found[0].read_text())["rounds"]}


@pytest.mark.parametrize("name", HELD)
def test_promise_is_kept(rounds: dict[str, dict[str, Any]], name: str) -> None:
    seen = rounds[name]
    assert set(seen["wrongs"]) <= {Wrong.SLOW}, seen["faults"]
    assert seen["requests"] > 100
    assert seen["failed"] == seen["excused"]
