"""TLS between a front and its ingress replicas, and what a replica's own server does when its certificate changes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import uvicorn

from serve_app.front.certificate import write_copies
from serve_app.front.ingress import CertificateRenewal
from serve_app.front.settings import IngressTls
from tests.certificates import Authority, serial_of
from tests.contract.front.replicas import replicas
from tests.contract.front.running import QUICK, RunningFront, prepared_front
from tests.ports import free_port
from tests.waiting import eventually

CHAT = "/v1/chat/completions"
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Files:
    """The certificate of the replicas, and the authority that fronts trust."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.certificate, self.key, self.trusted = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.believe(self.authority)
        self.issue()

    def believe(self, authority: Authority) -> None:
        self.trusted.write_text(authority.pem)

    def issue(self, authority: Authority | None = None, name: str = "manta") -> int:
        return (authority or self.authority).issue(self.certificate, self.key, (name, "127.0.0.1"))

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(files: Files) -> AsyncIterator[RunningFront]:
    # A replica shakes hands within the time between two checks.
    timings = replace(QUICK, answer_s=1.0, check_s=0.5)
    async with prepared_front(ingress_tls=IngressTls(str(files.trusted), "manta"), timings=timings) as prepared:
        write_copies(prepared.settings)
        await prepared.start()
        yield prepared


async def test_replica_is_found_and_asked_over_tls(front: RunningFront, files: Files) -> None:
    async with replicas(front.replica_ports[0], context=files.context()) as (replica,):
        await front.knows(replica.port)
        answer = await front.looks.post(CHAT, content=b"{}")
        assert answer.text == str(replica.port)
        replica.is_draining = True
        await front.knows()  # Its backend without checks speaks TLS too.
        assert (await front.looks.post(CHAT, content=b"{}")).text == str(replica.port)


FAULTS = ["name", "authority", "plain"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_replica_without_a_trusted_certificate_gets_no_request(
    front: RunningFront, files: Files, fault: str
) -> None:
    good, bad = front.replica_ports[0], front.replica_ports[3 + FAULTS.index(fault)]
    right = files.context()
    files.issue(*{"name": (None, "other"), "authority": (Authority(), "manta"), "plain": ()}[fault])
    wrong = None if fault == "plain" else files.context()
    files.issue()
    async with replicas(good, context=right), replicas(bad, context=wrong) as (stranger,):
        await front.knows(good)
        if fault == "plain":
            await eventually(lambda: stranger.num_connections > 1)  # The first was to no avail.
        else:
            await eventually(lambda: front.checks(bad) == {"L6RSP"})  # HAProxy has refused its certificate.
        await front.knows(good)
        assert {(await front.looks.post(CHAT, content=b"{}")).text for _ in range(6)} == {str(good)}
        assert stranger.requests == []


async def test_authority_that_changes_is_taken_up(front: RunningFront, files: Files) -> None:
    first, second = front.replica_ports[:2]
    other = Authority()
    async with replicas(first, context=files.context()):
        await front.knows(first)
        files.authority = other
        files.issue()
        files.believe(other)
        async with replicas(second, context=files.context()):
            await front.knows(second)


async def test_server_of_a_replica_takes_up_a_certificate_that_changes(files: Files) -> None:
    async def app(scope: dict[str, object], receive: object, send: object) -> None:
        return

    port, shown = free_port(), files.issue()
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        port=port,
        ssl_certfile=str(files.certificate),
        ssl_keyfile=str(files.key),
        lifespan="off",
        log_level="critical",
    )
    server = uvicorn.Server(config)
    renewal = CertificateRenewal(files.certificate, files.key, interval_s=0.05)
    serving = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        renewal.watch()
        assert await _serial_shown(port, files) == shown
        _, open_before = await asyncio.open_connection("127.0.0.1", port, ssl=files.authority.context())
        renewed = files.issue()

        async def is_shown() -> bool:
            return await _serial_shown(port, files) == renewed

        await eventually(is_shown)
        assert not open_before.is_closing()
        open_before.close()
        await open_before.wait_closed()
    finally:
        await renewal.close()
        server.should_exit = True
        await serving


async def _serial_shown(port: int, files: Files) -> int:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=files.authority.context())
    serial = serial_of(writer.get_extra_info("ssl_object"))
    writer.close()
    await writer.wait_closed()
    return serial
