"""Serve's log in a replica's process is as it was once the replica has imported vLLM, which sets up its own logging."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_REPLICA = """
import asyncio, json, logging, sys
from logging.handlers import MemoryHandler
from pathlib import Path
from types import SimpleNamespace
from ray.serve._private.common import ServeComponentType
from ray.serve._private.logging_utils import configure_component_logger
from ray.serve.schema import LoggingConfig
from deployments.models.config import ModelConfig
from deployments.replica.server import ModelReplica

configure_component_logger(  # As Serve does before it makes a replica.
    component_name="manta_model", component_id="r", component_type=ServeComponentType.REPLICA, buffer_size=1_000,
    logging_config=LoggingConfig(logs_dir=sys.argv[1]), max_bytes=1_000_000, backup_count=1,
)
serve, vllm = logging.getLogger("ray.serve"), logging.getLogger("vllm")
(buffer,) = [handler for handler in serve.handlers if isinstance(handler, MemoryHandler)]
path = buffer.target.baseFilename
serve.info("before")
assert "vllm" not in sys.modules
try:  # The engine of such a model does not start, but vLLM is imported before that is found out.
    asyncio.run(ModelReplica.__init__(SimpleNamespace(), ModelConfig(id="m", source="demo:none", max_model_len=64)))
except ValueError as error:
    failure = str(error)
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.logger import configure_logging_if_needed
configure_logging_if_needed(AsyncEngineArgs().create_logging_config())  # As vLLM does when it makes an engine.
serve.info("after")
vllm.warning("a warning from vLLM")
vllm.info("a word from vLLM")
sys.__stdout__.write(json.dumps({
    "failure": failure,
    "file": buffer.target and buffer.target.baseFilename == path,  # What a controller that restarts asks for.
    "formatters": [type(handler.formatter).__name__ for handler in vllm.handlers],
}))
"""


def start_replica(folder: Path, **environment: str) -> tuple[dict[str, Any], str, list[str]]:
    """Return what a replica's process found out once vLLM was imported, what it printed, and its Serve log."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _REPLICA, str(folder)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (log,) = folder.glob("replica_*.log")
    lines = [line.partition(" -- ")[2] for line in log.read_text().splitlines()]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout, lines


def test_serves_log_goes_on_and_vllms_lines_are_printed_as_vllm_sets_them_up(tmp_path: Path) -> None:
    found, printed, log = start_replica(tmp_path, RAY_SERVE_THROUGHPUT_OPTIMIZED="0")
    assert "none" in found["failure"]
    assert found["file"]
    assert log == ["before", "after"]
    assert found["formatters"] == ["NewLineFormatter"]
    for line in ("WARNING TIME a warning from vLLM", "INFO TIME a word from vLLM"):
        pattern = line.replace("TIME", r"[\d-]+ [\d:]+ \[<string>:\d+\]")
        assert re.search(rf"^\(MainProcess pid=\d+\) {pattern}$", printed, re.M)


@pytest.mark.exhaustive
def test_serves_log_has_vllms_lines_as_the_operator_wants_them_where_serve_takes_what_is_printed(
    tmp_path: Path,
) -> None:
    config = {  # As in vLLM's manual: it does not say what becomes of other loggers.
        "version": 1,
        "formatters": {"own": {"format": "OWN %(levelname)s %(message)s"}},
        "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own", "stream": "ext://sys.stdout"}},
        "loggers": {"vllm": {"handlers": ["own"], "level": "WARNING", "propagate": False}},
    }
    path = tmp_path / "logging.json"
    path.write_text(json.dumps(config))
    found, _, log = start_replica(tmp_path, RAY_SERVE_THROUGHPUT_OPTIMIZED="1", VLLM_LOGGING_CONFIG_PATH=str(path))
    assert found["file"]
    ours = {"before", "after", "OWN WARNING a warning from vLLM", "a word from vLLM"}
    assert [line for line in log if line in ours] == ["before", "after", "OWN WARNING a warning from vLLM"]
