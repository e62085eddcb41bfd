"""The side channel over TLS: both ends show a certificate, and files that change are read again."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from deployments.channel.client import Address, connect
from deployments.channel.errors import Lost
from deployments.channel.server import Capacity, ChannelServer
from deployments.channel.tls import TlsFiles
from deployments.config import ConfigError
from tests.certificates import Authority, serial_of
from tests.contract.channel.test_channel import ScriptedRunner, read_all


class Node:
    """The files of a node."""

    def __init__(self, folder: Path, authority: Authority, name: str = "manta") -> None:
        folder.mkdir(parents=True)
        self.folder, self.authority = folder, authority
        self.files = TlsFiles(
            certificate=str(folder / "tls.crt"),
            key=str(folder / "tls.key"),
            authority=str(folder / "ca.crt"),
            name="manta",
        )
        Path(self.files["authority"]).write_text(authority.pem)
        self.serial = self.issue(authority, name)

    def issue(self, authority: Authority, name: str = "manta") -> int:
        return authority.issue(Path(self.files["certificate"]), Path(self.files["key"]), (name,))

    def believe(self, authority: Authority) -> None:
        Path(self.files["authority"]).write_text(authority.pem)

    def spoil(self, name: Literal["certificate", "key"]) -> None:
        Path(self.files[name]).write_text("nothing of use")


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def node(tmp_path: Path, authority: Authority) -> Node:
    return Node(tmp_path / "node", authority)


@pytest.fixture
async def address(tmp_path: Path, node: Node) -> AsyncIterator[Address]:
    server = ChannelServer(ScriptedRunner(), Capacity(4, 0), node.files)
    found = await server.start("127.0.0.1", str(tmp_path / "replica.sock"))
    yield Address(**{**found, "path": str(tmp_path / "nothing")})  # As a node elsewhere sees it.
    await server.close()


async def echoes(address: Address) -> None:
    channel = await connect(address, lambda: None)
    body = b"answer" * 50_000
    try:
        assert await read_all(channel.open({"do": "echo"}, body)) == body
    finally:
        channel.close()


async def test_answers_pass(address: Address) -> None:
    await echoes(address)


async def test_client_without_tls_gets_nothing(address: Address) -> None:
    plain = Address(**{name: value for name, value in address.items() if name != "tls"})  # type: ignore[arg-type]
    channel = await connect(plain, lambda: None)
    with pytest.raises(Lost):
        await read_all(channel.open({"do": "echo"}, b"body"))


@pytest.mark.parametrize("fault", ["authority", "name", "no file", "not shown"])
async def test_end_that_is_none_of_ours_is_refused(
    address: Address, node: Node, tmp_path: Path, authority: Authority, fault: str
) -> None:
    match fault:
        case "authority":  # The client's certificate is another authority's: the server refuses it.
            other = Node(tmp_path / "other", Authority())
            other.believe(authority)
            files = other.files
        case "name":
            files = {**node.files, "name": "other"}  # type: ignore[assignment]
        case "no file":
            files = {**node.files, "key": str(tmp_path / "none")}  # type: ignore[assignment]
        case _:
            context = ssl.create_default_context(cadata=authority.pem)
            reader, writer = await asyncio.open_connection(
                address["host"], address["port"], ssl=context, server_hostname="manta"
            )
            with contextlib.suppress(ssl.SSLError, ConnectionError):  # Over TLS 1.3 a client learns it when it reads.
                writer.write(b"hello")  # A server that accepts would wait for the rest of the frame.
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
            return
    with pytest.raises(Lost):
        channel = await connect(Address(**{**address, "tls": files}), lambda: None)
        await read_all(channel.open({"do": "echo"}, b"body"))


async def test_files_that_change_are_read_again_at_both_ends(address: Address, node: Node) -> None:
    channel = await connect(address, lambda: None)
    other = Authority()
    serial = node.issue(other)
    node.believe(other)  # What both know now; the old authority is gone.
    await echoes(address)
    assert await _serial_shown(address, other, node) == serial != node.serial
    assert await read_all(channel.open({"do": "echo"}, b"still open")) == b"still open"
    node.spoil("certificate")
    await echoes(address)
    channel.close()


async def _serial_shown(address: Address, authority: Authority, node: Node) -> int:
    context = ssl.create_default_context(cadata=authority.pem)
    context.load_cert_chain(node.files["certificate"], node.files["key"])
    _, writer = await asyncio.open_connection(address["host"], address["port"], ssl=context, server_hostname="manta")
    serial = serial_of(writer.get_extra_info("ssl_object"))
    writer.close()
    await writer.wait_closed()
    return serial


async def test_server_does_not_start_without_its_files(tmp_path: Path, node: Node) -> None:
    node.spoil("key")
    with pytest.raises(ConfigError, match=r"tls.key .*cannot be used"):
        await ChannelServer(ScriptedRunner(), Capacity(1, 0), node.files).start("127.0.0.1", str(tmp_path / "s"))
