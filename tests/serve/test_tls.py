"""A service with TLS everywhere: its Ray processes speak it, and its ingress replicas, whose certificate changes."""

import asyncio
import socket
import ssl
from pathlib import Path

import httpx2
import psutil
import pytest

from serve_app.front.addresses import listening_on
from tests.certificates import CertificateFiles, serial_of
from tests.service import CHAT, Service
from tests.waiting import eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


async def test_requests_reach_replicas_that_speak_tls_and_take_up_a_new_certificate(
    fixed: Service, of_replicas: CertificateFiles
) -> None:
    key = await asyncio.to_thread(fixed.issue_unlimited)
    body = {"model": CHAT, "max_tokens": 10, "messages": [{"role": "user", "content": "Tell me of the sea."}]}
    ports = fixed.replica_ports
    (replica, *_) = sorted(listening_on(ports.start, ports.stop - 1))
    context = of_replicas.authority.context()
    async with httpx2.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as http:
        assert (await http.post(f"{fixed.url}/v1/chat/completions", json=body)).status_code == 200
        with pytest.raises(httpx2.TransportError):
            await http.get(f"http://{replica}/-/healthz")
        assert await _serial_shown(replica.port, context) == of_replicas.serial
        renewed = of_replicas.issue()

        async def is_shown() -> bool:
            return await _serial_shown(replica.port, context) == renewed

        await eventually(is_shown)
        assert (await http.post(f"{fixed.url}/v1/chat/completions", json=body)).status_code == 200


async def _serial_shown(port: int, context: ssl.SSLContext) -> int:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    serial = serial_of(writer.get_extra_info("ssl_object"))
    writer.close()
    await writer.wait_closed()
    return serial


def test_rays_processes_speak_tls(fixed: Service, of_ray: CertificateFiles, tmp_path: Path) -> None:
    certificate, own_key = tmp_path / "tls.crt", tmp_path / "tls.key"
    of_ray.authority.issue(certificate, own_key)
    context = ssl.create_default_context(cadata=of_ray.authority.pem)
    context.check_hostname = False
    context.load_cert_chain(certificate, own_key)
    listening = _ports_of(fixed, ("gcs_server", "raylet"))
    assert {name for name, _ in listening} == {"gcs_server", "raylet"}
    assert {name for name, port in listening if _speaks_tls(port, context)} == {"gcs_server", "raylet"}


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
