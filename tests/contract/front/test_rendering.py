"""HAProxy accepts every configuration that is rendered."""

import subprocess
from pathlib import Path

import pytest

from serve_app.front.addresses import Address
from serve_app.front.answers import write_answers
from serve_app.front.binary import find_haproxy
from serve_app.front.rendering import render_config
from serve_app.front.settings import FrontSettings
from tests.contract.front.replicas import TRUST


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "*"])
@pytest.mark.parametrize("num_servers", [0, 3, 70])
def test_configuration_is_accepted_without_a_warning(tmp_path: Path, host: str, num_servers: int) -> None:
    settings = FrontSettings(tmp_path, host, 18_999, TRUST.request_key, TRUST.proof_key, receive_timeout_s=0.5)
    servers = [(Address("::1" if port % 2 else "10.0.0.1", port), port > 3) for port in range(1, num_servers + 1)]
    path = tmp_path / "haproxy.cfg"
    answers = write_answers(tmp_path, settings.receive_timeout_s)
    path.write_text(render_config(settings, 0, answers, servers))
    checked = subprocess.run([find_haproxy(), "-c", "-f", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr
    assert "valid" in checked.stdout + checked.stderr
