"""The front over TLS with real HAProxy processes: clients, plain HTTP, certificates that change under connections."""

import asyncio
import os
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from serve_app.front.addresses import Address
from serve_app.front.asking import ask
from serve_app.front.certificate import write_copies
from serve_app.front.settings import NUM_PROXIES, TlsFiles
from tests import needs
from tests.certificates import Authority, serial_of
from tests.contract.front.replicas import TRUST, replicas
from tests.contract.front.running import RunningFront, prepared_front
from tests.ports import free_port
from tests.waiting import eventually

CHAT = "/v1/chat/completions"
STAYS = "The certificate stays as it is"
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Site:
    """A front over TLS, and the files of its certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.files = TlsFiles(str(folder / "tls.crt"), str(folder / "tls.key"), free_port())
        self.issue()

    def issue(self) -> int:
        """Write a new certificate; return its serial number."""
        self.serial = self.authority.issue(Path(self.files.certificate), Path(self.files.key))
        return self.serial

    def spoil(self) -> None:
        """Put something else in the certificate's place, in one step: half a file would be one change more."""
        draft = Path(self.files.certificate).with_suffix(".draft")
        draft.write_text("no certificate")
        draft.replace(self.files.certificate)

    async def serial_shown(self, front: RunningFront) -> int:
        """Return the serial number of the certificate that a new connection gets."""
        _, writer = await asyncio.open_connection("127.0.0.1", front.settings.port, ssl=self.authority.context())
        serial = serial_of(writer.get_extra_info("ssl_object"))
        writer.close()
        return serial


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("tls"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(site: Site) -> AsyncIterator[RunningFront]:
    async with prepared_front(tls=site.files) as prepared:
        prepared.context = site.authority.context()
        write_copies(prepared.settings)
        await prepared.start()
        yield prepared


async def test_clients_speak_tls_and_are_told_to_stay_with_it(front: RunningFront) -> None:
    async with replicas(front.replica_ports[0]):
        await front.knows(front.replica_ports[0])
        answer = await front.looks.post(CHAT, content=b"{}")
    assert answer.status_code == 200
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert answer.headers["x-request-id"].startswith("req_")


async def test_old_protocols_are_refused(site: Site, front: RunningFront) -> None:
    context = site.authority.context()
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.open_connection("127.0.0.1", front.settings.port, ssl=context)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    writer.close()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection("127.0.0.1", front.settings.port, ssl=context)


async def test_plain_http_is_refused_and_sent_on_where_that_is_wanted(site: Site, front: RunningFront) -> None:
    async with httpx2.AsyncClient() as http:
        with pytest.raises(httpx2.TransportError):
            await http.get(f"http://127.0.0.1:{front.settings.port}/livez")
        plain = f"http://127.0.0.1:{site.files.redirect_port}"
        answer = await http.post(f"{plain}/v1/chat/completions?a=b", content=b"{}")
        assert answer.status_code == 308
        assert answer.headers["location"] == f"{front.url}/v1/chat/completions?a=b"


async def test_http_2_is_spoken_to_those_who_can(front: RunningFront) -> None:
    node, _ = needs.node()
    program = """
        const client = require("http2").connect(process.argv[1], { rejectUnauthorized: false });
        const asked = client.request({ ":path": "/livez" });
        asked.on("response", (headers) => console.log(client.alpnProtocol, headers[":status"]));
        asked.on("end", () => client.close()).resume().end();
    """
    done = await asyncio.to_thread(
        subprocess.run, [node, "-e", program, front.url], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.split() == ["h2", "200"], done.stderr


async def test_a_new_certificate_cuts_no_connection(site: Site, front: RunningFront) -> None:
    async with replicas(front.replica_ports[0]), front.client() as http:
        await front.knows(front.replica_ports[0])
        first = site.serial
        await http.post(CHAT, content=b"{}")
        pids = [front.pid_of(number) for number in range(NUM_PROXIES)]
        renewed = site.issue()
        for _ in range(2 * NUM_PROXIES):  # Whichever process a connection comes to.
            await eventually(lambda: _is(site, front, renewed))
        answer = await http.post(CHAT, content=b"{}")
        kept = answer.extensions["network_stream"].get_extra_info("ssl_object")
    assert serial_of(kept) == first
    assert [front.pid_of(number) for number in range(NUM_PROXIES)] == pids


async def _is(site: Site, front: RunningFront, serial: int) -> bool:
    return await site.serial_shown(front) == serial


async def test_a_process_that_is_started_anew_has_the_new_certificate(site: Site, front: RunningFront) -> None:
    renewed = site.issue()
    await eventually(lambda: _is(site, front, renewed))
    for number in range(NUM_PROXIES):
        killed = front.pid_of(number)
        os.kill(killed, signal.SIGKILL)
        await front.is_back(number, killed)
    assert await site.serial_shown(front) == renewed


async def test_a_pair_that_does_not_fit_is_logged_once_and_the_old_one_stays(site: Site, front: RunningFront) -> None:
    said = front.log.count(STAYS)
    site.spoil()
    await eventually(lambda: front.log.count(STAYS) > said)
    async with replicas(front.replica_ports[0]) as (replica,):
        await eventually(lambda: replica.num_questions > 2)  # In that many rounds, the same files are seen again.
    assert front.log.count(STAYS) == said + 1
    assert await site.serial_shown(front) == site.serial
    renewed = site.issue()
    await eventually(lambda: _is(site, front, renewed))


async def test_another_front_may_be_asked_over_tls(front: RunningFront) -> None:
    async with replicas(front.replica_ports[0]):
        await front.knows(front.replica_ports[0])
        address = Address("127.0.0.1", front.settings.port)
        handshake = await asyncio.to_thread(lambda: ask(address, TRUST, over_tls=True))
    assert handshake.port == front.replica_ports[0]
