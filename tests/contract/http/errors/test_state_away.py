"""A database or an object store that is away or full: requests get an error that says so, batch requests wait."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import OperationalError

from deployments.state.batches.store import BatchStore
from deployments.state.database.connection import Database, connect
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import BucketStore
from deployments.state.responses.store import ResponseStore
from tests.contract.http.answers import MODEL
from tests.contract.http.batch_calls import finish, jsonl, line, lines_of, submit
from tests.contract.http.conftest import run_batches
from tests.contract.objects.volumes import mounted
from tests.patience import SOON
from tests.ports import free_port

ASK = {"model": MODEL, "input": "Hi."}


class Away:
    """A method of a store that fails so often before it does its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, num_failures: int) -> None:
        self.num_left = num_failures
        real = getattr(ResponseStore, name)

        async def flaky(store, *args, **kwargs):
            if self.num_left > 0:
                self.num_left -= 1
                raise OperationalError(None, None, ConnectionRefusedError("db.internal refuses"))
            return await real(store, *args, **kwargs)

        monkeypatch.setattr(ResponseStore, name, flaky)


async def test_a_request_that_needs_the_database_is_told_that_it_is_away(world, monkeypatch):
    async with world.http() as http:
        made = (await http.post("/v1/responses", json=ASK)).json()
        Away(monkeypatch, "load", 1)
        answer = await http.get(f"/v1/responses/{made['id']}")
        assert answer.status_code == 503
        assert answer.json()["error"] == {
            "message": "The database cannot be reached right now. Please retry your request.",
            "type": "server_error",
            "param": None,
            "code": None,
        }
        assert answer.headers["retry-after"] == "1"
        assert (await http.get(f"/v1/responses/{made['id']}")).json()["id"] == made["id"]


@pytest.mark.parametrize("name", ["save", "chain"])
async def test_a_line_that_asks_for_a_response_waits_for_the_database(world, batch_stores, monkeypatch, name):
    async with world.http() as http:
        previous = (await http.post("/v1/responses", json=ASK)).json()["id"]
    world.principal(requests_per_minute=10_000)
    away = Away(monkeypatch, name, 2)
    monkeypatch.setattr("batch.calls._MAX_WAIT_S", 0.01)
    async with run_batches(world, batch_stores):
        client = world.client()
        asked = [
            line(number, url="/v1/responses", body={**ASK, "previous_response_id": previous}) for number in range(2)
        ]
        batch = await finish(client, await submit(client, jsonl(*asked), endpoint="/v1/responses"))
        output = await lines_of(client, batch.output_file_id)
    assert away.num_left == 0
    assert [one["response"]["status_code"] for one in output] == [200, 200]
    assert world.stored.count() == 3


async def test_a_line_gives_up_on_a_database_that_stays_away(world, batch_stores, monkeypatch):
    world.principal(requests_per_minute=10_000)
    away = Away(monkeypatch, "save", 1000)
    monkeypatch.setattr("batch.calls._MAX_WAIT_S", 0.001)
    async with run_batches(world, batch_stores):
        client = world.client()
        asked = line(0, url="/v1/responses", body=ASK)
        batch = await finish(client, await submit(client, jsonl(asked), endpoint="/v1/responses"))
        (output,) = await lines_of(client, batch.output_file_id)
    assert away.num_left == 940
    assert output["response"]["status_code"] == 503
    assert "db.internal" not in str(output)


NO_ROOM = "There is no room left to store this. Delete files you no longer need, or ask the operator."
AWAY = "Stored files cannot be reached right now. Please retry your request."


def told(answer) -> tuple[int, object]:
    return answer.status_code, answer.json()["error"]


def server_error(message: str) -> dict[str, object]:
    return {"message": message, "type": "server_error", "param": None, "code": None}


@pytest.fixture
async def database(tmp_path) -> AsyncIterator[Database]:
    opened = await connect(f"sqlite+aiosqlite:///{tmp_path}/files.db")
    yield opened
    await opened.close()


async def test_an_upload_that_a_directory_does_not_take_leaves_nothing(world, database, tmp_path):
    volume = mounted(tmp_path / "volume")
    try:
        place = volume.place / "objects"
        world.files = FileStore(
            database, BucketStore(ResolvedObjectStore(place.as_uri())), Vault(database, b"m" * 32), world.clock
        )
        content = jsonl(*map(line, range(10)))
        async with world.http() as http:

            async def upload():
                return await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})

            volume.fill()
            assert told(await upload()) == (507, {**server_error(NO_ROOM), "code": "insufficient_storage"})
            volume.free()
            volume.forbid_writing()
            refused = await upload()
            assert told(refused) == (503, server_error(AWAY))
            assert refused.headers["retry-after"] == "1"
            volume.allow_writing()
            assert (await http.get("/v1/files")).json()["data"] == []
            assert [path for path in place.rglob("*") if path.is_file()] == []
            file_id = (await upload()).json()["id"]
            assert (await http.get(f"/v1/files/{file_id}/content")).content == content
    finally:
        volume.remove()


async def test_an_upload_that_a_database_does_not_take_is_not_there(world, tmp_path):
    volume = mounted(tmp_path / "volume")
    database = await connect(f"sqlite+aiosqlite:///{volume.place}/files.db")
    try:
        place = tmp_path / "objects"
        objects = BucketStore(ResolvedObjectStore(place.as_uri()))
        world.files = FileStore(database, objects, Vault(database, b"m" * 32), world.clock)
        content = jsonl(*map(line, range(10)))
        async with world.http() as http:

            async def upload():
                return await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})

            kept = (await upload()).json()["id"]
            volume.fill()
            assert told(await upload()) == (507, {**server_error(NO_ROOM), "code": "insufficient_storage"})
            volume.free()
            assert [file["id"] for file in (await http.get("/v1/files")).json()["data"]] == [kept]
            assert (await upload()).status_code == 200
    finally:
        await database.close()
        volume.remove()


async def test_an_upload_to_a_bucket_that_does_not_answer_is_a_503(world, database):
    options = {
        "endpoint": f"http://127.0.0.1:{free_port()}",
        "region": "us-east-1",
        "access_key_id": "testing",
        "secret_access_key": "testing",
    }
    objects = BucketStore(ResolvedObjectStore("s3://nothing/here", timeout_s=1, options=options))
    world.files = FileStore(database, objects, Vault(database, b"m" * 32), world.clock)
    async with world.http() as http:
        answer = await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", jsonl(line(0)))})
        assert told(answer) == (503, server_error(AWAY))
        assert (await http.get("/v1/files")).json()["data"] == []


async def test_a_request_to_a_database_that_hangs_is_a_503(world, mortal_postgres):
    opened = await connect(mortal_postgres.create_database(), SOON)
    vault = Vault(opened, b"m" * 32)
    world.files = FileStore(opened, world.objects, vault, world.clock)
    world.batches = BatchStore(opened, vault, clock=world.clock)
    async with world.http() as http:
        content = jsonl(line(0))
        made = await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})
        asked = {"input_file_id": made.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        mortal_postgres.pause()
        away = (503, server_error("The database cannot be reached right now. Please retry your request."))
        async with asyncio.timeout(120):
            assert told(await http.get("/v1/files")) == away
            assert told(await http.post("/v1/batches", json=asked)) == away
            refused = await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})
            assert told(refused) == away
        mortal_postgres.resume()
        assert (await http.post("/v1/batches", json=asked)).json()["status"] == "validating"
        assert [one["id"] for one in (await http.get("/v1/files")).json()["data"]] == [made.json()["id"]]
    await opened.close()
