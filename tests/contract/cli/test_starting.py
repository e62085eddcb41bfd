"""`manta serve` starts Ray anew, four times, where its node or its dashboard did not start; what else ends stays so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NO_NODE = '  File "/lib/python3.11/site-packages/ray/_private/node.py", line 440, in __init__'
NO_DASHBOARD = "2026-11-26 20:54:08,763\tERROR services.py:1431 -- Failed to start the dashboard"
OTHER = "ValueError: the configuration is wrong"

# Fails as often as it is told to with some words, after which it ends or runs on; then it runs.
COMMAND = """
import sys, time
from pathlib import Path
starts = Path(sys.argv[1])
with starts.open("a") as file:
    file.write(".")
if len(starts.read_text()) <= int(sys.argv[2]):
    print(sys.argv[3], flush=True)
    if sys.argv[4] == "ends":
        sys.exit(1)
else:
    print("runs", flush=True)
time.sleep(600)
"""

# In a process of its own: a tree that is ended takes every child of its process along.
OPERATOR = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from rich.console import Console
from serve_app.cli.supervise import serve
from serve_app.cli.supervise.process_tree import ProcessTree
log = Path(sys.argv[1]) / "serve.log"
tree = ProcessTree([sys.executable, "-c", sys.argv[2], sys.argv[1] + "/starts", *sys.argv[3:]], dict(os.environ), log)
plan, front = SimpleNamespace(url="http://127.0.0.1:9", log_path=log), SimpleNamespace(keep=lambda: None)
progress = serve._wait_until_ready(tree, front, plan, [], Console(stderr=True), 10.0)
print(progress.problem or "ended")
tree.end(0.5)
"""


@pytest.mark.parametrize(
    ("num_failures", "words", "then", "num_starts", "outcome"),
    [
        (1, NO_NODE, "ends", 2, "Not ready after 10 seconds."),
        (2, NO_NODE, "ends", 3, "Not ready after 10 seconds."),
        (5, NO_NODE, "ends", 5, "ended"),
        (2, NO_DASHBOARD, "runs on", 3, "Not ready after 10 seconds."),
        (5, NO_DASHBOARD, "runs on", 5, "ended"),
        (1, OTHER, "ends", 1, "ended"),
        (1, OTHER, "runs on", 1, "Not ready after 10 seconds."),
    ],
)
def test_ray_is_started_anew_where_its_node_did_not_start(
    tmp_path: Path, num_failures: int, words: str, then: str, num_starts: int, outcome: str
) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", OPERATOR, str(tmp_path), COMMAND, str(num_failures), words, then],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.stdout.startswith(outcome), completed.stderr
    assert (tmp_path / "starts").read_text() == "." * num_starts
    log = (tmp_path / "serve.log").read_text()
    assert log.count(words) == num_failures  # The log of the first start is kept.
    assert ("runs" in log) == (num_starts > num_failures)
    assert completed.stderr.replace("\n", " ").count("started once more") == num_starts - 1
