"""A process of ours that runs hostile code stays within its bounds."""

import dataclasses

import pytest

from deployments.bounded_process import Bounds, ProcessFailed, ProcessTimedOut, run

BOUNDS = Bounds(cpu_s=20, wall_s=30.0, memory_bytes=64 << 20, output_bytes=1 << 20)


def run_code(code: str, **bounds: float) -> str:
    return run(
        "tests.contract.bounded_process.given_code", code.encode(), dataclasses.replace(BOUNDS, **bounds)
    ).decode()


def test_what_it_writes_is_returned():
    assert run_code("print('x' * 100_000)") == "x" * 100_000 + "\n"


def test_it_inherits_neither_environment_nor_working_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.chdir(tmp_path)
    assert run_code("import os; print('SECRET' in os.environ)") == "False\n"
    assert run_code("import os; print(os.getcwd() in sys.path, '' in sys.path)") == "False False\n"


@pytest.mark.parametrize(
    "code",
    [
        "bytearray(128 << 20)",
        "sys.stdout.write('x' * (2 << 20)); sys.stdout.flush()",
        "files = [open('/dev/null') for _ in range(20)]",
        "raise SystemExit(3)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    ],
    ids=["memory", "output", "files", "exit", "crash"],
)
def test_it_fails_beyond_a_bound(code):
    with pytest.raises(ProcessFailed) as caught:
        run_code(code)
    assert type(caught.value) is ProcessFailed


def test_it_is_ended_by_cpu_time():
    with pytest.raises(ProcessFailed, match="status -24"):
        run_code("while True: pass", cpu_s=1)


def test_it_is_ended_by_the_wall_clock():
    with pytest.raises(ProcessTimedOut):
        run_code("import time; time.sleep(60)", wall_s=2.0)


def test_it_ends_by_itself_where_its_parent_is_gone():
    assert run_code("import signal; print(signal.alarm(0))", wall_s=30.0) in ("30\n", "31\n")
