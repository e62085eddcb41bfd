"""A service whose ingress replicas speak TLS, before which a front stands, and whose certificate changes."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from serve_app.front.addresses import listening_on
from tests.certificates import Authority, serial_of
from tests.serve.conftest import ENVIRONMENT, scripted, service_config
from tests.service import CHAT, Service, running_service
from tests.waiting import eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


class Files:
    """The certificate of the replicas."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.certificate, self.key, self.believed = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.believed.write_text(self.authority.pem)
        self.serial = self.issue()

    def issue(self) -> int:
        return self.authority.issue(self.certificate, self.key, ("manta", "127.0.0.1"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def encrypted(files: Files) -> Iterator[Service]:
    tls = {"certificate": str(files.certificate), "key": str(files.key), "authority": str(files.believed)}
    with running_service(service_config([scripted(CHAT)], tls=tls), ENVIRONMENT) as service:
        yield service


async def test_requests_reach_replicas_that_speak_tls_and_take_up_a_new_certificate(
    encrypted: Service, files: Files
) -> None:
    key = await asyncio.to_thread(encrypted.issue_unlimited)
    body = {"model": CHAT, "max_tokens": 10, "messages": [{"role": "user", "content": "Tell me of the sea."}]}
    ports = encrypted.replica_ports
    (replica, *_) = sorted(listening_on(ports.start, ports.stop - 1))
    context = files.authority.context()
    async with httpx2.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as http:
        assert (await http.post(f"{encrypted.url}/v1/chat/completions", json=body)).status_code == 200
        with pytest.raises(httpx2.TransportError):
            await http.get(f"http://{replica}/-/healthz")
        assert await _serial_shown(replica.port, context) == files.serial
        renewed = files.issue()

        async def is_shown() -> bool:
            return await _serial_shown(replica.port, context) == renewed

        await eventually(is_shown)
        assert (await http.post(f"{encrypted.url}/v1/chat/completions", json=body)).status_code == 200


async def _serial_shown(port: int, context: ssl.SSLContext) -> int:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    serial = serial_of(writer.get_extra_info("ssl_object"))
    writer.close()
    await writer.wait_closed()
    return serial
