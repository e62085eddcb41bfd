"""What `manta front` makes of a configuration, of its options and of the environment."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deployments.proof import FrontTrust
from deployments.state.config import StateConfig, resolve_state
from deployments.state.regions import ResolvedRegion
from serve_app.cli import front as command
from serve_app.cli import main
from serve_app.front.certificate import read_certificate
from serve_app.front.settings import (
    AddressBound,
    FrontSettings,
    IngressTls,
    TlsFiles,
    load_settings,
    supervisor_command,
)
from serve_app.front.supervisor import HaproxyMissing
from tests.certificates import Authority

LOCAL = Path(__file__).parents[3] / "configs" / "local.yaml"
PEPPER = "p" * 32


class Started(Exception):
    """The command became the supervisor."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MANTA_PEPPER", raising=False)
    monkeypatch.setenv("MANTA_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT", "31100")
    monkeypatch.setenv("RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT", "31199")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[FrontSettings | None, str]:
    """Run the command; return the settings of the supervisor that it became, and what it printed."""
    became: list[list[str]] = []

    def execute(path: str, command: list[str]) -> None:
        became.append(command)
        raise Started

    monkeypatch.setattr(command.os, "execv", execute)
    done: Any = CliRunner().invoke(main, ["front", *arguments])
    if not became:
        assert done.exit_code == 1
        return None, done.output
    assert isinstance(done.exception, Started)
    assert became == [supervisor_command(Path(became[0][-1]))]
    return load_settings(Path(became[0][-1])), done.output


def test_front_of_a_configuration_has_its_secret_and_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings, _ = run(
        monkeypatch, str(LOCAL), "--plain-http", "--host", "::", "--port", "8443", "--seed", "a:1", "--seed", "b:2"
    )
    assert settings is not None
    assert (settings.host, settings.port, settings.seeds) == ("::", 8443, ("a:1", "b:2"))
    assert (settings.min_port, settings.max_port) == (31100, 31199)
    pepper = resolve_state(StateConfig()).pepper
    assert settings.trust.proof_key == FrontTrust.from_pepper(pepper).proof_key
    assert str(tmp_path) in str(settings.run_dir) or settings.run_dir.parent == Path("/tmp")


def test_pepper_of_the_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTA_PEPPER", PEPPER)
    settings, _ = run(monkeypatch, "--plain-http")
    assert settings is not None
    assert settings.tls is None
    assert settings.trust.request_key == FrontTrust.from_pepper(PEPPER.encode()).request_key
    assert settings.port == 8000


def test_short_pepper_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTA_PEPPER", "short")
    assert run(monkeypatch, "--plain-http") == (None, "MANTA_PEPPER is shorter than 32 bytes.\n")


def test_wrong_configuration_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(LOCAL.read_text().replace("tool_parser: hermes", "tool_parsre: hermes"))
    settings, printed = run(monkeypatch, "--plain-http", str(path))
    assert settings is None
    assert "tool_parsre" in printed


def test_missing_haproxy_is_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> str:
        raise HaproxyMissing("No HAProxy binary found.")

    monkeypatch.setattr(command, "find_haproxy", find)
    assert run(monkeypatch) == (None, "No HAProxy binary found.\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "manta.example"])
def test_keys_are_not_sent_in_the_clear_unless_that_is_said(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    settings, printed = run(monkeypatch, "--host", host)
    assert settings is None
    assert f"Others can reach {host}, and without TLS" in printed
    assert "--plain-http" in printed


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_tls(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    assert run(monkeypatch, "--host", host)[0] is not None


def test_a_certificate_is_read_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    Authority().issue(certificate, key)
    files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    settings, _ = run(monkeypatch, *files, "--port", "443", "--redirect-port", "80")
    assert settings is not None
    assert settings.tls == TlsFiles(str(certificate), str(key), 80)
    assert settings.certificate_path.read_text() == read_certificate(settings.tls)
    assert settings.certificate_path.stat().st_mode & 0o777 == 0o600
    key.write_text("nonsense")
    settings, printed = run(monkeypatch, *files)
    assert settings is None
    assert f"{certificate} and {key}:" in printed.replace("\n", "")


def with_client_tls(path: Path, certificate: Path, key: Path) -> Path:
    """Write the local configuration with a certificate for clients; return its path."""
    section = f"    http: {{tls: {{certificate: {certificate}, key: {key}}}}}\n"
    path.write_text(LOCAL.read_text().replace("  args:\n", f"  args:\n{section}", 1))
    return path


def test_certificate_of_the_configuration_is_for_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    Authority().issue(certificate, key)
    path = with_client_tls(tmp_path / "config.yaml", certificate, key)
    settings, printed = run(monkeypatch, str(path), "--redirect-port", "80")
    assert settings is not None, printed
    assert settings.tls == TlsFiles(str(certificate), str(key), 80)
    assert settings.ingress_tls is None  # That is the section `tls`.


def test_options_override_the_certificate_of_the_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    Authority().issue(certificate, key)
    path = with_client_tls(tmp_path / "config.yaml", tmp_path / "other.crt", tmp_path / "other.key")
    settings, printed = run(monkeypatch, str(path), "--tls-certificate", str(certificate), "--tls-key", str(key))
    assert settings is not None, printed
    assert settings.tls == TlsFiles(str(certificate), str(key))
    settings, printed = run(monkeypatch, str(path), "--plain-http")
    assert settings is not None, printed
    assert settings.tls is None


def test_a_certificate_of_the_configuration_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = with_client_tls(tmp_path / "config.yaml", tmp_path / "none.crt", tmp_path / "none.key")
    settings, printed = run(monkeypatch, str(path))
    assert settings is None
    assert "none.crt" in printed.replace("\n", "")


REGION = ("--region", "us", "--other-region", "asia=https://asia.example")


@pytest.mark.parametrize(
    ("options", "max_connections", "trusted"),
    [
        ((), 4096, ()),
        (("--trusted-proxy", "10.0.0.7/24", "--trusted-proxy", "fd00::1"), 4096, ("10.0.0.0/24", "fd00::1/128")),
        (("--max-connections", "100"), 100, ()),
        (("--plain-http",), None, ()),
        (("--plain-http", "--max-connections", "100"), 100, ()),
        (REGION, None, ()),
        ((*REGION, "--trusted-proxy", "10.0.0.7"), 4096, ("10.0.0.7/32",)),
    ],
)
def test_connections_of_an_address_are_bounded_where_clients_come_to_the_front_itself(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: tuple[str, ...],
    max_connections: int | None,
    trusted: tuple[str, ...],
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    Authority().issue(certificate, key)
    files = () if "--plain-http" in options else ("--tls-certificate", str(certificate), "--tls-key", str(key))
    settings, printed = run(monkeypatch, *files, *options)
    assert settings is not None, printed
    assert settings.address_bound == AddressBound(max_connections, ("127.0.0.0/8", "::1", *trusted))


def test_bounds_of_connections_are_those_of_the_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    Authority().issue(certificate, key)
    path = tmp_path / "config.yaml"
    section = "    http: {max_connections_per_address: 50, trusted_proxies: [10.0.0.7]}\n"
    path.write_text(LOCAL.read_text().replace("  args:\n", f"  args:\n{section}", 1))
    settings, printed = run(monkeypatch, str(path), "--tls-certificate", str(certificate), "--tls-key", str(key))
    assert settings is not None, printed
    assert settings.address_bound == AddressBound(50, ("127.0.0.0/8", "::1", "10.0.0.7/32"))


def test_a_trusted_proxy_that_is_no_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, printed = run(monkeypatch, "--plain-http", "--trusted-proxy", "balancer")
    assert settings is None
    assert "Write an address or a network" in printed.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tls-key", "a"], "--tls-certificate and --tls-key go together."),
        (["--tls-certificate", "a"], "--tls-certificate and --tls-key go together."),
        (["--redirect-port", "80"], "--redirect-port needs --tls-certificate and --tls-key, or http.tls."),
    ],
)
def test_half_of_what_tls_needs_is_refused(monkeypatch: pytest.MonkeyPatch, options: list[str], message: str) -> None:
    assert run(monkeypatch, *options) == (None, message + "\n")


def test_region_and_tls_of_replicas_are_those_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text(Authority().pem)
    section = f"""\
    region: {{name: us, certificate_authority: {tmp_path}/ca.crt}}
    tls: {{certificate: {tmp_path}/tls.crt, key: {tmp_path}/tls.key, authority: {tmp_path}/ca.crt}}
"""
    path = tmp_path / "config.yaml"
    path.write_text(LOCAL.read_text().replace("  args:\n", f"  args:\n{section}", 1))
    settings, printed = run(monkeypatch, str(path), "--plain-http")
    assert settings is not None, printed
    assert settings.region == ResolvedRegion("us", {}, tmp_path / "ca.crt")
    assert settings.ingress_tls == IngressTls(str(tmp_path / "ca.crt"), "manta")
    assert settings.region_authority_path.exists()
    assert settings.ingress_authority_path.exists()


def test_region_may_be_given_as_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTA_PEPPER", PEPPER)
    options = ("--plain-http", "--region", "us", "--other-region", "asia=https://asia.example:8443")
    settings, printed = run(monkeypatch, *options)
    assert settings is not None, printed
    assert settings.region == ResolvedRegion("us", {"asia": "https://asia.example:8443"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--other-region", "asia=https://a"], "need --region"),
        (["--region", "U S"], "should be at most 16 small letters, digits and hyphens"),
        (["--region", "us", "--other-region", "asia"], "A region's address is not of the form"),
        (["--region", "us", "--other-region", "asia=http://a"], "which nothing encrypts"),
        (["--ingress-authority", "nothing.crt"], "nothing.crt: No such file"),
    ],
)
def test_regions_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch, options: list[str], message: str) -> None:
    monkeypatch.setenv("MANTA_PEPPER", PEPPER)
    settings, printed = run(monkeypatch, "--plain-http", *options)
    assert settings is None
    assert message in printed.replace("\n", " ")
