"""A large file passes through memory in small pieces, up and down, over a real server and real object stores."""

import asyncio
import hashlib

import httpx2
import orjson
import psutil
import pytest

from deployments.state.files.store import FileStore
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import BucketStore
from deployments.state.uploads.store import UploadStore
from tests.contract.http.answers import SECRET
from tests.contract.http.conftest import serve
from tests.waiting import eventually

MIB = 1024 * 1024
SIZE = 200 * MIB
PART = 8 * MIB
HEAD = (
    b'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
)
TAIL = b"\r\n--xyz--\r\n"


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.exhaustive)])
def object_place(request, tmp_path) -> ResolvedObjectStore:
    """An empty object store, of each kind that is real in turn."""
    if request.param == "directory":
        return ResolvedObjectStore((tmp_path / "objects").as_uri())
    return request.getfixturevalue("bucket")


@pytest.fixture
def size(object_place) -> int:
    """How large a file is: what the server of the bucket is given, it holds in memory and copies for each range."""
    return 64 * MIB if object_place.url.startswith("s3:") else SIZE


@pytest.fixture
def real_store(file_store, world, object_place) -> FileStore:
    world.files = FileStore(file_store._database, BucketStore(object_place), file_store.vault, world.clock)
    return world.files


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


async def read_content(address: str, file_id: str) -> tuple[int, int]:
    """Download a file; return how many bytes came, and by how much memory grew."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = f"GET /v1/files/{file_id}/content HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n"
    writer.write(f"{request}Connection: close\r\n\r\n".encode())
    process = psutil.Process()
    before = peak = process.memory_info().rss
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    num_bytes = 0
    while piece := await reader.read(256 * 1024):
        assert not piece.strip(b"x")
        num_bytes += len(piece)
        peak = max(peak, process.memory_info().rss)
    writer.close()
    return num_bytes, peak - before


async def test_a_large_file_takes_little_memory(world, real_store, size):
    async with serve(world.app()) as address:
        small, _ = await send_upload(address, 20 * MIB)  # What is made once, at the first use, is not counted.
        await read_content(address, id_of(small))
        answer, grown_bytes = await send_upload(address, size)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
        assert f'"bytes":{size}'.encode() in answer
        assert grown_bytes <= 32 * MIB
        num_bytes, grown_bytes = await read_content(address, id_of(answer))
    assert num_bytes == size
    assert grown_bytes <= 32 * MIB


def id_of(answer: bytes) -> str:
    """Return the id of the file that an upload made."""
    file_id: str = orjson.loads(answer.partition(b"\r\n\r\n")[2])["id"]
    return file_id


async def test_a_file_that_comes_in_parts_is_put_together_in_little_memory(world, file_store, real_store, size):
    world.uploads = UploadStore(file_store._database, real_store)
    new = {"bytes": size, "filename": "large.bin", "mime_type": "x", "purpose": "user_data"}
    digest = hashlib.md5()
    async with serve(world.app()) as address, httpx2.AsyncClient(base_url=f"{address}/v1", timeout=120) as http:
        http.headers["authorization"] = f"Bearer {SECRET}"
        upload, parts = (await http.post("/uploads", json=new)).json()["id"], []
        for letter in range(size // PART):
            content = bytes([letter]) * PART
            digest.update(content)
            parts.append((await http.post(f"/uploads/{upload}/parts", files={"data": content})).json()["id"])
        process = psutil.Process()
        before = peak = process.memory_info().rss
        told = {"part_ids": parts, "md5": digest.hexdigest()}
        completing = asyncio.create_task(http.post(f"/uploads/{upload}/complete", json=told))
        while not completing.done():
            peak = max(peak, process.memory_info().rss)
            await asyncio.sleep(0.005)
        done = (await completing).json()
        assert (done["status"], done["file"]["bytes"]) == ("completed", size)
        assert peak - before <= 32 * MIB
        span = {"range": f"bytes={PART - 1}-{PART}"}
        assert (await http.get(f"/files/{done['file']['id']}/content", headers=span)).content == b"\0\1"


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
        await eventually(lambda: list((tmp_path / "objects").rglob("*#*")))
        writer.close()
        await eventually(lambda: not [path for path in (tmp_path / "objects").rglob("*") if path.is_file()])
        records = world.log.records
    assert [record.status for record in records] == [499]
