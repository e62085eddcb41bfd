"""What a sandbox's processes take, as different kernels tell it."""

import os
from types import SimpleNamespace

import pytest

from deployments.tools.sandbox.census import parse_own_bytes, used_inodes

LINUX = (
    b"Name:\tpython\nState:\tS (sleeping)\nVmSize:\t  900 kB\nVmRSS:\t  70 kB\nRssAnon:\t  40 kB\nRssFile:\t  25 kB\n"
)


@pytest.mark.parametrize(
    ("status", "num_kib"),
    [
        (LINUX + b"RssShmem:\t   5 kB\nThreads:\t1\n", 45),
        (LINUX, 40),
        (b"Name:\tpython\nVmSize:\t900 kB\nVmRSS:\t70 kB\nVmData:\t50 kB\nThreads:\t1\n", 70),  # gVisor's.
        (b"Name:\tkthreadd\nThreads:\t1\n", 0),
    ],
)
def test_memory_is_what_is_the_processs_own_as_far_as_that_is_told(status: bytes, num_kib: int) -> None:
    assert parse_own_bytes(status) == num_kib * 1024


def test_files_are_counted_where_the_kernel_keeps_no_count(tmp_path, monkeypatch):
    for name in ("a", "b", "folder/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "around").symlink_to("/usr")
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_files=0, f_ffree=0))
    assert used_inodes(os.getpid(), str(tmp_path), 100) == 6
    assert used_inodes(os.getpid(), "/usr", 100) > 100
    assert used_inodes(os.getpid(), str(tmp_path / "none"), 100) == 0
