"""One Ray in this process for the actors that are tested without a service."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from tempfile import mkdtemp

import psutil
import pytest
import ray

from serve_app.cli.supervise.process_tree import end_processes
from tests.service import ROOT, describe
from tests.starts import started

LATE = """
import sys, time
if "agent.py" in " ".join(sys.orig_argv):
    time.sleep(20)
"""
START = """
import sys
from pathlib import Path
from deployments.local_ray import start_head
print(start_head(Path(sys.argv[1]), "--num-cpus=4", "--include-dashboard=false"), flush=True)
"""


@pytest.fixture(scope="package")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Ray cluster of actors, whose agents are late: a raylet that waited for them would have ended itself."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "sitecustomize.py").write_text(LATE)
    started("bare Rays")
    environment = {**os.environ, "PYTHONPATH": str(folder), "RAY_AUTH_MODE": "disabled"}
    rays_own = mkdtemp(prefix="mt-", dir="/tmp")  # Short: Ray makes Unix sockets far below it.
    command = [sys.executable, "-c", START, rays_own]
    start = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    with start:
        assert start.stdout is not None
        address = start.stdout.readline().decode().strip()  # Not to its end: Ray's processes keep it open.
    try:
        ray.init(address=address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        parts = [one for one in psutil.process_iter() if f"_{start.pid}/" in describe(one)]
        workers = [worker for part in parts for worker in part.children(recursive=True)]
        end_processes([*parts, *workers], patience_s=5)
        shutil.rmtree(rays_own, ignore_errors=True)
