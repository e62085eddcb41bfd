"""What `manta serve` prints works as it is pasted; the start and the end of the command are those of the service."""

import os
import re
import socket
import subprocess
import sys

import pytest

from tests.ports import free_port
from tests.service import TRAINED, Service, eventually
from tests.tools.pages.blocks import programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def printed(service: Service) -> str:
    """What the command printed until the service was ready."""
    return service.output_path.read_text()


@pytest.fixture(scope="module")
def printed_key(printed: str) -> str:
    """The first key of the service, as printed."""
    found = re.search(r"^API key +(\S+)$", printed, re.M)
    assert found is not None
    return found[1]


def run(*command: str, **environment: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_printed_lines_work_as_pasted(service: Service, printed: str) -> None:
    assert f"Base URL   {service.url}/v1\n" in printed
    curl = next(line for line in printed.splitlines() if line.startswith("curl "))
    assert "This is a test." in run("bash", "-c", f"{curl} -sS")
    code = printed[printed.index("from openai") : printed.index("Ctrl-C")]
    assert len(code.strip().splitlines()) == 6
    assert run(sys.executable, "-c", code).strip() == "This is a test."


def test_programs_of_the_guide_to_remote_servers_work_with_the_demo_model(service: Service, printed_key: str) -> None:
    port = free_port()
    (server,), (client,) = programs("mcp-server"), programs("mcp")
    code = client.code.replace("manta/demo-chat", TRAINED).replace("8765", str(port))
    with subprocess.Popen([sys.executable, "-c", server.code.replace("8765", str(port))]) as running:
        try:
            eventually(lambda: is_open(port), 60, "the server answers")
            told = run(sys.executable, "-c", code, OPENAI_BASE_URL=f"{service.url}/v1", OPENAI_API_KEY=printed_key)
        finally:
            running.kill()
    assert "It wants to call [('stock', '{\"thing\": " in told
    assert "['There are 7 " in told


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_second_start_is_refused_while_the_first_has_the_port(service: Service) -> None:
    with pytest.raises(AssertionError, match=f"Port {service.port} is taken"):
        service.run_command("serve", str(service.config_path))
