"""What a process does with memory that it frees, seen from the pages that it asks the kernel for."""

import os
import subprocess
import sys

import pytest

from deployments.replica.processes import keep_freed_memory

NAMES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
ROUNDS, BLOCKS, BLOCK_BYTES = 10, 3, 30 * 2**20
STEPS = f"""
import resource
def step():
    blocks = [bytearray(b"1") * {BLOCK_BYTES} for _ in range({BLOCKS})]
for _ in range({ROUNDS}):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def faults():
    """Return how many pages each of a new process's steps asks for."""
    told = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    return [int(line) for line in told.stdout.split()]


def test_memory_that_a_step_frees_serves_the_next():
    pages = BLOCKS * BLOCK_BYTES // os.sysconf("SC_PAGE_SIZE")
    left_alone = faults()
    with keep_freed_memory():
        first, *later = faults()
    assert min(left_alone[1:]) > pages / 2, "these steps would keep their memory anyway"
    assert first > pages / 2
    assert max(later) < pages / 20


def test_what_the_operator_has_set_stays_and_nothing_else_does(monkeypatch):
    monkeypatch.setenv(NAMES[1], "4096")
    with keep_freed_memory():
        within = {name: os.environ[name] for name in NAMES}
    assert within == {NAMES[0]: "33554432", NAMES[1]: "4096"}
    assert {name: os.environ.get(name) for name in NAMES} == {NAMES[0]: None, NAMES[1]: "4096"}
