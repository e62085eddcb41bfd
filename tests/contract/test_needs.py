"""Tests on a machine that lacks the programs which they need."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDY = [
    "tests/contract/code_interpreter",
    "tests/contract/sandbox",
    "tests/contract/http/clients/test_node_client.py",
    "tests/contract/http/clients/test_open_webui.py",
]


@pytest.mark.exhaustive
def test_every_missing_program_is_one_line_of_the_summary_and_no_failure(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "MANTA_TEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *NEEDY]
    run = subprocess.run(
        command, cwd=ROOT, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    skipped = re.findall(r"^SKIPPED \[(\d+)\] tests/needs.py:\d+: (.*)$", run.stdout, re.MULTILINE)
    assert [reason for _, reason in skipped] == [
        "no sandbox can be built here: bubblewrap is not installed: apt-get install bubblewrap",
        "gVisor's runsc is neither on the PATH nor named by MANTA_TEST_RUNSC",
        "Node with npm is not installed (on Debian: apt-get install nodejs npm)",
        "Open WebUI is neither on the PATH nor named by MANTA_TEST_OPEN_WEBUI (in an environment of its own: uv pip "
        "install open-webui==0.12.4)",
    ]
    assert f"{sum(int(number) for number, _ in skipped)} skipped" in run.stdout.splitlines()[-1]
