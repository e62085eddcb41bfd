"""A command that is stopped takes everything with it that it started, however well that hid itself."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]

# Starts a process in a session of its own whose parent ends at once and which ignores the polite signals.
DETACHING = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
print("is up", flush=True)
time.sleep(600)
"""

OPERATOR = """
import os, sys, time
from pathlib import Path
from serve_app.cli.supervise.process_tree import ProcessTree
pid_file, log = Path(sys.argv[1]), Path(sys.argv[2])
tree = ProcessTree([sys.executable, "-c", sys.argv[3], str(pid_file)], dict(os.environ), log)
while not pid_file.exists() or not pid_file.read_text():
    time.sleep(0.05)
if sys.argv[4] == "die":
    os.kill(os.getpid(), 9)
print(tree.end(patience_s=0.5), tree.exit_status is not None, flush=True)
"""


def run_operator(tmp_path: Path, then: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", OPERATOR, str(tmp_path / "pid"), str(tmp_path / "log"), DETACHING, then]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=False)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_detached_process_ends_when_the_tree_ends(tmp_path: Path) -> None:
    completed = run_operator(tmp_path, "end")
    assert completed.stdout.split() == ["2", "True"], completed.stderr
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert (tmp_path / "log").read_text() == "is up\n"


def test_abandoned_process_is_found_when_the_operator_was_killed(tmp_path: Path) -> None:
    completed = run_operator(tmp_path, "die")
    assert completed.returncode == -9
    pid = int((tmp_path / "pid").read_text())
    assert psutil.pid_exists(pid)
    find_and_end = (
        "from serve_app.cli.supervise.process_tree import abandoned_processes, end_processes\n"
        "found = abandoned_processes(); print([process.pid for process in found]); end_processes(found, 0.5)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    completed = subprocess.run(
        [sys.executable, "-c", find_and_end], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert str(pid) in completed.stdout
    deadline = time.monotonic() + 30
    while not is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert is_gone(pid)


def test_process_of_a_living_operator_is_not_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from serve_app.cli.supervise.process_tree import MARK, abandoned_processes, mark_of_this_process, marked_processes

    mark = mark_of_this_process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={MARK: mark}) as child:
        assert [process.pid for process in marked_processes(mark)] == [child.pid]
        assert child.pid not in [process.pid for process in abandoned_processes()]
        child.kill()
