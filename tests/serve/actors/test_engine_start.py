"""What is ready once `start_engine` has returned: a replica takes requests from then on.

In a process of its own: what a replica makes of vLLM's metrics and of the log would stay for the tests after it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from tests.service import ROOT
from tests.starts import started

pytestmark = [pytest.mark.serve, pytest.mark.timeout(600), pytest.mark.usefixtures("ray_cluster")]

START = """
import asyncio
import psutil
from deployments.models.config import ModelConfig
from deployments.replica.engine import start_engine

def priorities():
    children = psutil.Process().children(recursive=True)
    return [one.nice() for one in children if "deployments.replica.schemas.process" in one.cmdline()]

async def main():
    options = {"dtype": "float32", "enforce_eager": True, "max_model_len": 128}
    config = ModelConfig(id="m", device="cpu", engine_kwargs=options, **FIELDS)
    engine = await start_engine(config)
    print("priorities", priorities())
    print("has every operation", set(engine.runners) == config.card.operations)
    await engine.stop()

if __name__ == "__main__":
    asyncio.run(main())
"""


def start(tmp_path: Path, fields: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program that starts a replica's engine, and return what became of it."""
    started("engines")
    path = tmp_path / "starts.py"
    path.write_text(f"FIELDS = {fields!r}\n{START}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
    environment |= {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_ready_replica_has_what_tries_schemas_out_warm(tmp_path: Path) -> None:
    done = start(tmp_path, {"source": "demo:chat"})
    warm = os.nice(0) + 5  # The process gives way to the engine once it is warm, not before.
    assert f"priorities [{warm}]" in done.stdout, done.stderr[-2000:]


@pytest.mark.exhaustive
def test_a_replica_starts_a_cross_encoder_with_every_operation_of_its_task(tmp_path: Path) -> None:
    done = start(tmp_path, {"source": "demo:rank", "task": "score"})
    assert "has every operation True" in done.stdout, done.stderr[-2000:]
