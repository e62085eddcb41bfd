"""What leaves a node that Ray drains, on a Ray cluster of several nodes: one of its own, in a process of its own."""

import asyncio
import itertools
import json
import sys
from pathlib import Path

import pytest

from tests.service import ROOT

pytestmark = [pytest.mark.serve, pytest.mark.exhaustive, pytest.mark.timeout(300)]


async def test_the_gatekeeper_says_that_it_stops_and_moves_to_another_node(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.serve.drained_node", str(tmp_path)), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    seen = json.loads(output.splitlines()[-1])
    assert seen["then"] != seen["first"], seen["met"]
    answers = [met for met in seen["met"] if met != "TransportDown"]
    assert [met for met, _ in itertools.groupby(answers)] == ["answered", "Stopping", "answered"]
