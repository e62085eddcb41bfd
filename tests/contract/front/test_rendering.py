"""HAProxy accepts every configuration that is rendered."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from deployments.state.regions import ResolvedRegion
from serve_app.front.addresses import Address
from serve_app.front.certificate import write_copies
from serve_app.front.rendering import render_config, write_answers
from serve_app.front.settings import AddressBound, FrontSettings, TlsFiles
from serve_app.front.supervisor import find_haproxy
from serve_app.front.table import RegionState
from tests.certificates import Authority
from tests.contract.front.replicas import TRUST

NEW = RegionState()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "*"])
@pytest.mark.parametrize("num_servers", [0, 3, 70])
def test_configuration_is_accepted_without_a_warning(tmp_path: Path, host: str, num_servers: int) -> None:
    settings = FrontSettings(tmp_path, host, 18_999, TRUST, receive_timeout_s=0.5)
    servers = [(Address("::1" if port % 2 else "10.0.0.1", port), port > 3) for port in range(1, num_servers + 1)]
    assert_is_accepted(tmp_path, settings, servers)


def assert_is_accepted(
    folder: Path, settings: FrontSettings, servers: Sequence[tuple[Address, bool]] = (), state: RegionState = NEW
) -> None:
    path = folder / "haproxy.cfg"
    answers = write_answers(folder, settings.receive_timeout_s)
    path.write_text(render_config(settings, 0, answers, servers, state))
    checked = subprocess.run([find_haproxy(), "-c", "-f", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr
    assert "valid" in checked.stdout + checked.stderr


@pytest.mark.parametrize("trusted", [(), ("10.0.0.0/24", "fd00::/8")])
def test_configuration_that_bounds_connections_is_accepted_too(tmp_path: Path, trusted: tuple[str, ...]) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    Authority().issue(certificate, key)
    bound = AddressBound(7, (*AddressBound().trusted, *trusted))
    tls = TlsFiles(str(certificate), str(key), 18_998)
    settings = FrontSettings(tmp_path, "127.0.0.1", 18_999, TRUST, tls=tls, address_bound=bound)
    write_copies(settings)
    assert_is_accepted(tmp_path, settings)


@pytest.mark.parametrize(
    "others",
    [{}, {"asia": "https://asia.example.com:8443"}, {"asia": "http://127.0.0.1:8001", "eu": "https://eu.example.com"}],
)
@pytest.mark.parametrize("is_drained", [False, True])
def test_configuration_of_a_region_is_accepted_too(tmp_path: Path, others: dict[str, str], is_drained: bool) -> None:
    region = ResolvedRegion("us", others)
    settings = FrontSettings(tmp_path, "127.0.0.1", 18_999, TRUST, region=region)
    state = RegionState(is_drained, {"asia": (Address("127.0.0.1", 1), Address("::1", 2))})
    assert_is_accepted(tmp_path, settings, state=state)
