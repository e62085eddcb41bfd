"""What an eavesdropper on the network sees of each hop: a word in a prompt and a key, with TLS and without.

Without TLS the word must be seen, or this test could not fail.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex

import httpx2
import pytest
from sqlalchemy import text

from deployments.channel.client import Address, connect
from deployments.channel.server import Capacity, ChannelServer, Reply
from deployments.channel.tls import TlsFiles as ChannelFiles
from deployments.state.config import parse_database_url
from deployments.state.database.connection import connect as connect_database
from serve_app.front.certificate import write_copies
from serve_app.front.settings import IngressTls, TlsFiles
from tests import needs
from tests.certificates import Authority
from tests.contract.front.regions import Site, front_of, sees
from tests.contract.front.replicas import replicas
from tests.contract.front.running import prepared_front
from tests.contract.state.postgres import PostgresServer
from tests.ports import free_port

CHAT = "/v1/chat/completions"


class Sniffer:
    """Collects the packets on loopback."""

    def __init__(self) -> None:
        self._packets = needs.packets()
        self._packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024 * 1024)
        self._seen: list[bytes] = []
        self._last_word = token_hex(16).encode()
        self._thread = threading.Thread(target=self._collect)
        self._thread.start()

    def _collect(self) -> None:
        while not self._seen or self._last_word not in self._seen[-1]:
            self._seen.append(self._packets.recv(65_536 + 64))

    def close(self) -> list[bytes]:
        """Stop; return the packets that came before."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while self._thread.is_alive():  # A packet that finds no room is lost.
                sender.sendto(self._last_word, ("127.0.0.1", 9))
                self._thread.join(0.1)
        self._packets.close()
        return self._seen


@pytest.fixture
def sniffer() -> Iterator[Sniffer]:
    found = Sniffer()
    yield found
    found.close()


class Hop:
    """What a hop needs: certificates in a folder, whether it speaks TLS, and the word that is looked for."""

    def __init__(self, folder: Path, *, is_encrypted: bool) -> None:
        self.is_encrypted = is_encrypted
        self.canary = f"canary{token_hex(16)}"
        self.authority = Authority()
        self.certificate, self.key, self.trusted = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.trusted.write_text(self.authority.pem)
        self.authority.issue(self.certificate, self.key, ("manta", "localhost", "127.0.0.1"))
        self.site = Site(folder)
        self.site.authority = self.authority
        self.site.authority_file.write_text(self.authority.pem)

    async def ask(self, url: str) -> None:
        """Send the word as a prompt and as a key."""
        async with httpx2.AsyncClient(verify=self.authority.context(), timeout=30) as http:
            headers = {"authorization": f"Bearer {self.canary}"}
            answer = await http.post(url + CHAT, content=self.canary.encode(), headers=headers)
            assert answer.status_code == 200


async def ask_from_client_to_front(hop: Hop) -> None:
    """The last hop, to the replica, is encrypted here, so that only the first can show the word."""
    tls = TlsFiles(str(hop.certificate), str(hop.key)) if hop.is_encrypted else None
    await _ask_front(hop, tls=tls, is_replica_encrypted=True)


async def ask_from_front_to_ingress(hop: Hop) -> None:
    """The first hop is encrypted here, so that only the last can show the word."""
    await _ask_front(hop, tls=TlsFiles(str(hop.certificate), str(hop.key)), is_replica_encrypted=hop.is_encrypted)


async def _ask_front(hop: Hop, tls: TlsFiles | None, *, is_replica_encrypted: bool) -> None:
    ingress_tls = IngressTls(str(hop.trusted), "manta") if is_replica_encrypted else None
    async with prepared_front(tls=tls, ingress_tls=ingress_tls) as front:
        front.context = hop.authority.context()
        write_copies(front.settings)
        await front.start()
        context = hop.authority.server_context(hop.certificate, hop.key) if is_replica_encrypted else None
        async with replicas(front.replica_ports[0], context=context) as (replica,):
            await front.knows(replica.port)
            await hop.ask(front.url)
            assert replica.requests


async def ask_from_region_to_region(hop: Hop) -> None:
    """A front without replicas sends on what another region's front gives to its replica over TLS."""
    ports = free_port(), free_port()
    hop.site.issue("us")
    hop.site.issue("asia")
    ingress_tls = IngressTls(str(hop.trusted), "manta")
    async with (
        front_of(hop.site, "us", ports[0], {"asia": ports[1]}, "https" if hop.is_encrypted else "http") as us,
        _far_front(hop, ports[1], ingress_tls) as port,
    ):
        await us.start()
        context = hop.authority.server_context(hop.certificate, hop.key)
        async with replicas(port, context=context, region="asia") as (replica,):
            await sees(us, "asia")
            await hop.ask(us.url)
            assert replica.requests


@asynccontextmanager
async def _far_front(hop: Hop, port: int, ingress_tls: IngressTls) -> AsyncIterator[int]:
    """Run the front of asia, without TLS where the hop has none; return where it looks for its replica."""
    async with front_of(hop.site, "asia", port, {}, ingress_tls=ingress_tls, is_plain=not hop.is_encrypted) as asia:
        await asia.start()
        yield asia.replica_ports[0]


class _Echo:
    async def run(self, header: dict[str, str], body: bytes, reply: Reply) -> None:
        reply.write(body)
        reply.end({})


async def ask_over_the_side_channel(hop: Hop) -> None:
    """The client is on another node as far as it knows: it finds no Unix socket."""
    folder = hop.trusted.parent
    files = ChannelFiles(certificate=str(hop.certificate), key=str(hop.key), authority=str(hop.trusted), name="manta")
    server = ChannelServer(_Echo(), Capacity(1, 0), files if hop.is_encrypted else None)
    address = await server.start("127.0.0.1", str(folder / "channel.sock"))
    channel = await connect(Address(**{**address, "path": str(folder / "nothing")}), lambda: None)
    stream = channel.open({"key": hop.canary}, hop.canary.encode())
    assert b"".join(await stream.read()) == hop.canary.encode()
    channel.close()
    await server.close()


async def ask_the_database(hop: Hop) -> None:
    needs.postgresql()
    server = await asyncio.to_thread(PostgresServer)
    try:
        await asyncio.to_thread(server.start_with_tls, hop.certificate, hop.key)
        url = await asyncio.to_thread(server.create_database)
        settings = f"sslmode=verify-full&sslrootcert={hop.trusted}" if hop.is_encrypted else "sslmode=disable"
        database = await connect_database(parse_database_url(f"{url.replace('127.0.0.1', 'localhost')}?{settings}"))
        async with database.write() as connection:
            found = await connection.execute(text("SELECT CAST(:word AS text)"), {"word": hop.canary})
            assert found.scalar_one() == hop.canary
        await database.close()
    finally:
        await asyncio.to_thread(server.remove)


Ask = Callable[[Hop], Awaitable[None]]
HOPS = [
    ask_from_client_to_front,
    ask_from_front_to_ingress,
    ask_from_region_to_region,
    ask_over_the_side_channel,
    ask_the_database,
]


@pytest.mark.parametrize("ask", [ask for ask in HOPS if ask is not ask_from_front_to_ingress])  # That is in the first.
async def test_word_is_not_seen_with_tls(tmp_path: Path, sniffer: Sniffer, ask: Ask) -> None:
    assert not await is_seen(sniffer, ask, Hop(tmp_path, is_encrypted=True))


@pytest.mark.parametrize("ask", [HOPS[0], *[pytest.param(ask, marks=pytest.mark.exhaustive) for ask in HOPS[1:]]])
async def test_word_is_seen_without_tls(tmp_path: Path, sniffer: Sniffer, ask: Ask) -> None:
    assert await is_seen(sniffer, ask, Hop(tmp_path, is_encrypted=False))


async def is_seen(sniffer: Sniffer, ask: Ask, hop: Hop) -> bool:
    await ask(hop)
    packets = sniffer.close()
    assert len(packets) > 10
    return any(hop.canary.encode() in packet for packet in packets)
