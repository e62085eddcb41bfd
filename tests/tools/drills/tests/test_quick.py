"""The quick drills, on one node: nothing fails, is lost, wrong or charged twice, whatever is killed under load.

How long requests wait is for `make drills`, on a machine that does nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.tools.drills.judge import Wrong
from tests.tools.drills.table import DRILLS, UNDISTURBED

pytestmark = [pytest.mark.serve, pytest.mark.exhaustive, pytest.mark.timeout(900)]

QUICK = [drill.name for drill in DRILLS if drill.is_quick]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The round of each quick drill, by its name."""
    needs.drills()
    folder = tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "tests.tools.drills", "--quick", "--results", str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
    found = list(folder.glob("*.json"))
    assert found, done.stdout + done.stderr
    return {one["name"]: one for one in json.loads(found[0].read_text())["rounds"]}


@pytest.mark.parametrize("name", [UNDISTURBED, *QUICK])
def test_promise_is_kept(rounds: dict[str, dict[str, Any]], name: str) -> None:
    seen = rounds[name]
    assert set(seen["wrongs"]) <= {Wrong.SLOW}, seen["faults"]
    assert seen["requests"] > 100
    assert seen["failed"] == 0
