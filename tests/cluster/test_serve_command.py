"""`manta serve` on the configuration that is its default, as a stranger uses it: start, paste what it prints, stop."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.ports import free_port
from tests.service import START_S, eventually
from tests.tools.pages.blocks import programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "import typer; from serve_app.cli.supervise.serve import serve; typer.run(serve)"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], int]:
    """Return a configuration on a port of its own, the environment for it, and the port."""
    directory = tmp_path_factory.mktemp("serve")
    port = free_port()
    config = directory / "config.yaml"
    local = (ROOT / "configs" / "local.yaml").read_text()
    config.write_text(local.replace("port: 8000", f"port: {port}").replace("8765", str(free_port())))
    environment = {**os.environ, "MANTA_STATE_DIR": str(directory / "state")}
    environment.pop("RAY_ADDRESS", None)
    return config, environment, port


@contextmanager
def serving(config: Path, environment: dict[str, str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start the command; give it with what it printed once it was ready, and stop it if the test did not."""
    process = subprocess.Popen(
        [*COMMAND, str(config)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    started = time.monotonic()
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line or time.monotonic() - started > START_S:
                break
        assert "Ctrl-C stops it." in printed, printed
        yield process, printed
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
        process.wait(120)
        process.stdout.close()


def stop(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    """Stop the command; assert that it goes well and that none of its descendants is left."""
    descendants = psutil.Process(process.pid).children(recursive=True)
    assert len(descendants) > 5
    process.send_signal(number)
    assert process.wait(120) == 0
    gone, alive = psutil.wait_procs(descendants, timeout=5)
    assert [child.cmdline() for child in alive] == []
    assert len(gone) == len(descendants)
    mark = f"MANTA_SERVE={process.pid}:".encode()
    assert [found for found in Path("/proc").glob("[0-9]*/environ") if mark in read_bytes(found)] == []


def run_programs_of_mcp(config: Path, address: str, key: str) -> str:
    """Return what the program of the guide to remote servers prints, with its server beside it."""
    at = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", config.read_text())
    assert at is not None
    (server,), (client,) = programs("mcp-server"), programs("mcp")
    with subprocess.Popen([sys.executable, "-c", server.code.replace("8765", at[1])]) as running:
        try:
            eventually(lambda: is_open(int(at[1])), 60, "the server answers")
            code = client.code.replace("8765", at[1]).replace("http://127.0.0.1:8000", address)
            code = code.replace("sk-manta-...", key)
            ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        finally:
            running.kill()
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_printed_lines_work_as_pasted_and_nothing_is_left_when_stopped(
    place: tuple[Path, dict[str, str], int],
) -> None:
    config, environment, port = place
    with serving(config, environment) as (process, printed):
        assert f"http://127.0.0.1:{port}/v1" in printed
        key = re.search(r"^API key +(\S+)$", printed, re.M)
        assert key is not None

        curl = next(line for line in printed.splitlines() if line.startswith("curl "))
        answer = subprocess.run(["bash", "-c", f"{curl} -sS"], capture_output=True, text=True, timeout=60, check=True)
        assert "This is a test." in answer.stdout, answer.stdout

        code = printed[printed.index("from openai") : printed.index("Ctrl-C")]
        assert len(code.strip().splitlines()) == 6
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert ran.stdout.strip() == "This is a test.", ran.stderr

        tools = run_programs_of_mcp(config, f"http://127.0.0.1:{port}", key[1])
        assert "It wants to call [('stock', '{\"thing\": " in tools
        assert "('mcp_call', 'There are 7 " in tools

        second = subprocess.run(
            [*COMMAND, str(config)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert second.returncode == 1
        assert f"Port {port} is taken" in second.stderr

        stop(process, signal.SIGTERM)
