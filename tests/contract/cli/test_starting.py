"""`manta serve` starts Ray anew, twice, where its node did not start; what else ends is not started again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NO_NODE = '  File "/lib/python3.11/site-packages/ray/_private/node.py", line 440, in __init__'

# Ends as often as it is told to with some last words, then runs on.
COMMAND = """
import sys, time
from pathlib import Path
starts = Path(sys.argv[1])
with starts.open("a") as file:
    file.write(".")
if len(starts.read_text()) <= int(sys.argv[2]):
    sys.exit(sys.argv[3])
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
progress = serve._wait_until_ready(tree, front, plan, [], Console(stderr=True), 3.0)
print(progress.problem or "ended")
tree.end(0.5)
"""


@pytest.mark.parametrize(
    ("num_ends", "words", "num_starts", "outcome"),
    [
        (1, NO_NODE, 2, "Not ready after 3 seconds."),
        (2, NO_NODE, 3, "Not ready after 3 seconds."),
        (3, NO_NODE, 3, "ended"),
        (1, "ValueError: the configuration is wrong", 1, "ended"),
    ],
)
def test_ray_is_started_anew_where_its_node_did_not_start(
    tmp_path: Path, num_ends: int, words: str, num_starts: int, outcome: str
) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", OPERATOR, str(tmp_path), COMMAND, str(num_ends), words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.stdout.startswith(outcome), completed.stderr
    assert (tmp_path / "starts").read_text() == "." * num_starts
    log = (tmp_path / "serve.log").read_text()
    assert log.count(words) == num_ends  # The log of the first start is kept.
    assert ("runs" in log) == (outcome != "ended")
    assert completed.stderr.replace("\n", " ").count("started once more") == num_starts - 1
