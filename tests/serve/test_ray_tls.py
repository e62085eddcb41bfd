"""A service whose Ray processes speak TLS to each other, as an operator turns it on."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.certificates import Authority
from tests.serve.conftest import ENVIRONMENT, scripted, service_config
from tests.service import CHAT, Service, running_service

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def encrypted(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("ray-tls")
    certificate, key, believed = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
    believed.write_text(authority.pem)
    authority.issue(certificate, key, ("localhost", *_own_addresses()))
    paths = {"RAY_TLS_SERVER_CERT": certificate, "RAY_TLS_SERVER_KEY": key, "RAY_TLS_CA_CERT": believed}
    environment = {**ENVIRONMENT, "RAY_USE_TLS": "1", **{name: str(path) for name, path in paths.items()}}
    with running_service(service_config([scripted(CHAT)]), environment) as service:
        yield service


async def test_requests_are_answered_over_a_ray_whose_processes_speak_tls(
    encrypted: Service, authority: Authority, tmp_path: Path
) -> None:
    key = await asyncio.to_thread(encrypted.issue_unlimited)
    body = {"model": CHAT, "max_tokens": 10, "messages": [{"role": "user", "content": "Tell me of the sea."}]}
    async with httpx2.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as http:
        assert (await http.post(f"{encrypted.url}/v1/chat/completions", json=body)).status_code == 200
    certificate, own_key = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.issue(certificate, own_key)
    context = ssl.create_default_context(cadata=authority.pem)
    context.check_hostname = False
    context.load_cert_chain(certificate, own_key)
    listening = await asyncio.to_thread(_ports_of, encrypted, ("gcs_server", "raylet"))
    assert {name for name, _ in listening} == {"gcs_server", "raylet"}
    spoken = {name for name, port in listening if await asyncio.to_thread(_speaks_tls, port, context)}
    assert spoken == {"gcs_server", "raylet"}


def _own_addresses() -> list[str]:
    return sorted(
        {one.address for own in psutil.net_if_addrs().values() for one in own if one.family is socket.AF_INET}
    )


def _ports_of(service: Service, names: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return where the service's processes of these names listen."""
    return [
        (process.name(), connection.laddr.port)
        for process in service.processes()
        if process.name() in names
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


def _speaks_tls(port: int, context: ssl.SSLContext) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False
