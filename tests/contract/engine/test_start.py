"""What is ready once `start_engine` has returned: a replica takes requests from then on."""

import os

import pytest

from tests.contract.engine.conftest import run_apart

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STARTS = """
import asyncio
import psutil
from deployments.models.config import ModelConfig
from deployments.replica.engine import start_engine

def priorities():
    children = psutil.Process().children(recursive=True)
    return [one.nice() for one in children if "deployments.replica.schemas.process" in one.cmdline()]

async def main():
    options = {"dtype": "float32", "enforce_eager": True, "max_model_len": 128}
    config = ModelConfig(id="chat", source="demo:chat", device="cpu", engine_kwargs=options)
    engine = await start_engine(config)
    print("priorities", priorities())
    await engine.stop()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_ready_replica_has_what_tries_schemas_out_warm(tmp_path):
    done = run_apart(STARTS, tmp_path)
    warm = os.nice(0) + 5  # The process gives way to the engine once it is warm, not before.
    assert f"priorities [{warm}]" in done.stdout, done.stderr[-2000:]
