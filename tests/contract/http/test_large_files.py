"""A large upload passes through memory in small pieces, over a real server and a real directory."""

import asyncio

import psutil
import pytest

from deployments.state.files import FileStore
from deployments.state.object_config import ResolvedObjectStore
from deployments.state.objects import BucketStore
from tests.contract.http.answers import SECRET
from tests.contract.http.conftest import serve

MIB = 1024 * 1024
SIZE = 200 * MIB
HEAD = (
    b'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
)
TAIL = b"\r\n--xyz--\r\n"


@pytest.fixture
def directory_store(file_store, world, tmp_path) -> FileStore:
    objects = BucketStore(ResolvedObjectStore((tmp_path / "objects").as_uri()))
    world.files = FileStore(file_store._database, objects, file_store.vault, world.clock)
    return world.files


async def send_upload(address: str, num_bytes: int) -> tuple[bytes, int]:
    """Upload a file of that size as fast as it is taken; return the answer, and by how much memory grew."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    length = len(HEAD) + num_bytes + len(TAIL)
    writer.write(
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nConnection: close\r\n"
        f"Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: {length}\r\n\r\n".encode()
    )
    process = psutil.Process()
    piece = b"x" * (256 * 1024)
    before = peak = process.memory_info().rss
    writer.write(HEAD)
    try:
        for _ in range(num_bytes // len(piece)):
            writer.write(piece)
            await writer.drain()
            peak = max(peak, process.memory_info().rss)
        writer.write(b"x" * (num_bytes % len(piece)) + TAIL)
        await writer.drain()
    except ConnectionError:
        pass
    try:
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    writer.close()
    return answer, peak - before


async def test_two_hundred_megabytes_take_little_memory(world, directory_store):
    async with serve(world.app()) as address:
        await send_upload(address, 20 * MIB)  # What is made once, at the first upload, is not counted.
        answer, grown_bytes = await send_upload(address, SIZE)
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
    assert f'"bytes":{SIZE}'.encode() in answer
    assert grown_bytes <= 32 * MIB


async def test_one_byte_more_is_refused(world, directory_store):
    async with serve(world.app()) as address:
        answer, _ = await send_upload(address, SIZE + 1)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:300]
    assert b'"param":"file"' in answer


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(world, directory_store, tmp_path):
    async with serve(world.app()) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n"
            f"Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: {SIZE}\r\n\r\n".encode()
        )
        writer.write(HEAD + b"x" * (12 * MIB))
        await writer.drain()
        await asyncio.sleep(0.3)
        assert list((tmp_path / "objects").rglob("*#*"))
        writer.close()
        async with asyncio.timeout(5):
            while [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        records = world.log.records
    assert [record.status for record in records] == [499]
