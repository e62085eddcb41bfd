"""The table with which configurations are checked is that of the installed vLLM.

In a process of its own: to import vLLM takes long and changes much.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_table_is_that_of_the_installed_vllm() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.tools.vllm_options", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
