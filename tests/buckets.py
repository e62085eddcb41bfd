"""Object stores to test against: the twin, a directory, and a real S3 server of our own."""

import os
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import BucketStore, ObjectStore
from tests.ports import free_port
from tests.twins.objects import MemoryObjects


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server that lives as long as the tests."""
    port = free_port()
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    server = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None, "the server ended"
            try:
                urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=10)


@pytest.fixture
def bucket(s3_endpoint: str) -> ResolvedObjectStore:
    """An empty bucket."""
    name = f"manta-{secrets.token_hex(6)}"
    request = urllib.request.Request(f"{s3_endpoint}/{name}", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()
    options = {
        "endpoint": s3_endpoint,
        "region": "us-east-1",
        "access_key_id": "testing",
        "secret_access_key": "testing",
    }
    return ResolvedObjectStore(f"s3://{name}/some/prefix", options=options)


@pytest.fixture(params=["twin", "directory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty object store, of each kind in turn."""
    if request.param == "twin":
        return MemoryObjects()
    if request.param == "directory":
        return BucketStore(ResolvedObjectStore((tmp_path / "objects").as_uri()))
    return BucketStore(request.getfixturevalue("bucket"))
