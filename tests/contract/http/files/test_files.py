"""Files over HTTP, with OpenAI's client and without: stored, listed, read by range, deleted, refused."""

import os
from collections.abc import AsyncIterator

import openai
import pytest
from sqlalchemy import select

from deployments.state.database.tables.content import files
from deployments.state.housekeeping import Intervals
from tests.batches import insert_batch
from tests.contract.http.answers import SECRET
from tests.contract.http.conftest import run_batches
from tests.waiting import eventually

LINE = b'{"custom_id":"a"}\n'
OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrs"


@pytest.fixture
async def http(world, file_store):
    async with world.http() as http:
        yield http


@pytest.fixture
def client(world, file_store) -> openai.AsyncOpenAI:
    return world.client()


def form(*parts: tuple[str, bytes] | tuple[str, bytes, str], boundary: str = "xyz") -> bytes:
    body = b""
    for name, content, *filename in parts:
        more = f'; filename="{filename[0]}"' if filename else ""
        body += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"
        )
    return body + f"--{boundary}--\r\n".encode()


async def upload(http, *parts, content_type="multipart/form-data; boundary=xyz"):
    return await http.post("/v1/files", content=form(*parts), headers={"content-type": content_type})


PURPOSE = ("purpose", b"batch")
FILE = ("file", LINE, "in.jsonl")


async def test_a_file_goes_up_and_comes_back(client, world):
    file = await client.files.create(file=("in.jsonl", LINE * 3), purpose="batch")
    assert file.id.startswith("file-")
    assert (file.object, file.bytes, file.filename, file.purpose, file.status) == (
        "file",
        len(LINE) * 3,
        "in.jsonl",
        "batch",
        "processed",
    )
    assert file.created_at == int(world.clock())
    assert file.expires_at == file.created_at + 86_400
    other = await client.files.create(file=("a.txt", b"x"), purpose="user_data")
    assert other.expires_at == other.created_at + 30 * 86_400
    await client.files.delete(other.id)
    assert (await client.files.content(file.id)).content == LINE * 3
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.list()).data == [file]
    assert (await client.files.delete(file.id)).deleted is True
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file.id)
    assert world.objects.objects == {}


async def test_expiry_is_asked_for_and_happens_by_itself(client, world, file_store):
    file = await client.files.create(
        file=("x.txt", b"x"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600
    world.clock.advance(3600)
    with pytest.raises(openai.NotFoundError):
        await client.files.content(file.id)
    assert await file_store.sweep() == 1
    assert world.objects.objects == {}


async def test_lists_are_paged_by_the_client(client):
    ids = [(await client.files.create(file=(f"{n}.jsonl", LINE), purpose="batch")).id for n in range(5)]
    other = await client.files.create(file=("x.txt", b"x"), purpose="user_data")
    seen = [file.id async for file in client.files.list(limit=2, purpose="batch", order="asc")]
    assert sorted(seen) == sorted(ids)
    assert other.id not in seen
    page = await client.files.list(limit=2)
    assert page.has_more is True
    assert (page.model_dump()["first_id"], page.model_dump()["last_id"]) == (page.data[0].id, page.data[-1].id)


async def test_ranges_are_honoured(http):
    content = os.urandom(200_000)
    file_id = (await upload(http, PURPOSE, ("file", content, "in.jsonl"))).json()["id"]
    for asked, start, stop in [
        ("bytes=0-0", 0, 1),
        ("bytes=65530-65550", 65_530, 65_551),
        ("bytes=199999-", 199_999, 200_000),
        ("bytes=-10", 199_990, 200_000),
        ("bytes=100-999999", 100, 200_000),
    ]:
        answer = await http.get(f"/v1/files/{file_id}/content", headers={"range": asked})
        assert answer.status_code == 206
        assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/200000"
        assert answer.content == content[start:stop]
    for ignored in ("bytes=5-2", "bytes=-", "items=0-1", "bytes=0-1,5-6"):
        answer = await http.get(f"/v1/files/{file_id}/content", headers={"range": ignored})
        assert (answer.status_code, answer.content) == (200, content)
    answer = await http.get(f"/v1/files/{file_id}/content", headers={"range": "bytes=200000-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == "bytes */200000"


async def test_a_file_that_is_destroyed_while_it_is_asked_for_is_not_there(http, file_store, monkeypatch):
    file_id = (await upload(http, PURPOSE, FILE)).json()["id"]
    find = file_store.find

    async def find_and_delete(account, found_id):
        file = await find(account, found_id)
        await file_store.delete(account, found_id)
        return file

    monkeypatch.setattr(file_store, "find", find_and_delete)
    answer = await http.get(f"/v1/files/{file_id}/content")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == f"No such File object: {file_id}"


async def test_content_comes_with_its_name_and_is_kept_by_no_cache(http):
    file_id = (await upload(http, ("purpose", b"user_data"), ("file", b"x", "../näme \x01.txt"))).json()["id"]
    assert (await http.get(f"/v1/files/{file_id}")).json()["filename"] == "näme .txt"
    answer = await http.get(f"/v1/files/{file_id}/content")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''n%C3%A4me%20.txt"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("parts", "param", "code", "message"),
    [
        ([PURPOSE], "file", "missing_required_parameter", "Missing required parameter: 'file'."),
        ([FILE], "purpose", "missing_required_parameter", "Missing required parameter: 'purpose'."),
        ([("purpose", b"x"), FILE], "purpose", "invalid_value", "Invalid value: 'x'. Supported values are:"),
        ([FILE, ("purpose", b"x")], "purpose", "invalid_value", "Invalid value: 'x'. Supported values are:"),
        ([PURPOSE, ("file", LINE)], "file", "invalid_value", "Invalid 'file': its part of the form has no 'filename'."),
        ([PURPOSE, FILE, FILE], "file", None, "Only one 'file'"),
        ([PURPOSE, PURPOSE, FILE], "purpose", None, "Duplicate parameter: 'purpose'."),
        ([PURPOSE, ("more", b"x"), FILE], "more", "unknown_parameter", "Unknown parameter: 'more'."),
        ([("purpose", b"x" * 5000), FILE], "purpose", "string_above_max_length", "Invalid 'purpose': too long."),
        (
            [PURPOSE, ("file", LINE, "in.txt")],
            "file",
            "invalid_file_format",
            "Invalid file format for Batch API. Must be .jsonl",
        ),
        (
            [("file", LINE, "in.txt"), PURPOSE],
            "file",
            "invalid_file_format",
            "Invalid file format for Batch API. Must be .jsonl",
        ),
        (
            [PURPOSE, ("expires_after[anchor]", b"created_at"), ("expires_after[seconds]", b"60"), FILE],
            "expires_after.seconds",
            "integer_below_min_value",
            "Invalid 'expires_after.seconds': integer below minimum value.",
        ),
        (
            [PURPOSE, ("expires_after[anchor]", b"created_at"), ("expires_after[seconds]", b"2592001"), FILE],
            "expires_after.seconds",
            "integer_above_max_value",
            "Invalid 'expires_after.seconds': integer above maximum value.",
        ),
        (
            [PURPOSE, ("expires_after[anchor]", b"now"), ("expires_after[seconds]", b"3600"), FILE],
            "expires_after.anchor",
            "invalid_value",
            "Invalid value: 'now'.",
        ),
        (
            [PURPOSE, ("expires_after[seconds]", b"soon"), ("expires_after[anchor]", b"created_at"), FILE],
            "expires_after.seconds",
            "invalid_type",
            "Invalid type for 'expires_after.seconds'",
        ),
    ],
)
async def test_a_form_that_is_not_valid_is_refused_and_nothing_is_kept(http, world, parts, param, code, message):
    answer = await upload(http, *parts)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"].startswith(message)
    assert world.objects.objects == {}
    assert (await http.get("/v1/files")).json()["data"] == []


@pytest.mark.parametrize("body", [b"", b"{}", form(PURPOSE, FILE)[:-9], b"--xyz\r\nX: y\r\n\r\n"])
async def test_what_is_no_form_is_refused(http, world, body):
    headers = {"content-type": "multipart/form-data; boundary=xyz"}
    answer = await http.post("/v1/files", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("We could not parse the form in the body of your request.")
    assert world.objects.objects == {}


async def test_json_is_no_form(http):
    answer = await http.post("/v1/files", json={"purpose": "batch"})
    assert answer.status_code == 400
    assert "multipart/form-data" in answer.json()["error"]["message"]


class Upload:
    """A form with a file of a given size, sent in small pieces; `num_sent` is how much of it was asked for."""

    def __init__(self, num_bytes: int, *before: tuple[str, bytes]) -> None:
        head, tail = form(*before, ("file", b"<>", "in.jsonl")).split(b"<>")
        self.head, self.tail, self.num_bytes, self.num_sent = head, tail, num_bytes, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.head
        while self.num_sent < self.num_bytes:
            size = min(10_000, self.num_bytes - self.num_sent)
            self.num_sent += size
            yield b"x" * size
        yield self.tail


@pytest.mark.parametrize("purpose", [b"batch", b"user_data"])
async def test_a_file_over_its_purpose_s_limit_is_refused_before_the_rest_is_read(http, world, purpose):
    world.file_rules = world.file_rules.model_copy(update={"max_file_bytes": 400_000, "max_batch_file_bytes": 200_000})
    limit = 200_000 if purpose == b"batch" else 400_000
    async with world.http() as http:
        headers = {"content-type": "multipart/form-data; boundary=xyz"}
        fits = await http.post("/v1/files", content=Upload(limit, ("purpose", purpose)), headers=headers)
        assert (fits.status_code, fits.json()["bytes"]) == (200, limit)
        over = Upload(limit + 1, ("purpose", purpose))
        assert (await http.post("/v1/files", content=over, headers=headers)).status_code == 413
        sent = Upload(2_000_000, ("purpose", purpose))
        answer = await http.post("/v1/files", content=sent, headers=headers)
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "file")
    assert str(limit) in error["message"]
    assert len(world.objects.objects) == 1


async def test_no_more_is_taken_from_the_wire_once_a_file_is_too_large(world, file_store):
    world.file_rules = world.file_rules.model_copy(update={"max_batch_file_bytes": 50_000})
    upload, received = Upload(40_000_000, PURPOSE), []
    pieces = aiter(upload)

    async def receive():
        received.append(None)
        return {"type": "http.request", "body": await anext(pieces), "more_body": True}

    sent = []

    async def send(message):
        sent.append(message)

    headers = [
        (b"authorization", f"Bearer {SECRET}".encode()),
        (b"content-type", b"multipart/form-data; boundary=xyz"),
    ]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/files",
        "raw_path": b"/v1/files",
        "query_string": b"",
        "headers": headers,
        "root_path": "",
    }
    await world.app()(scope, receive, send)
    assert sent[0]["status"] == 413
    assert upload.num_sent <= 70_000


async def test_a_body_declared_too_large_is_not_read_at_all(http, world):
    world.file_rules = world.file_rules.model_copy(update={"max_file_bytes": 1024, "max_batch_file_bytes": 1024})
    async with world.http() as http:
        headers = {"content-type": "multipart/form-data; boundary=xyz"}
        answer = await http.post(
            "/v1/files", content=form(PURPOSE, ("file", b"x" * 70_000, "in.jsonl")), headers=headers
        )
    assert answer.status_code == 413
    assert answer.json()["error"]["param"] == "file"


async def test_other_paths_keep_their_own_bound(http, world):
    world.bounds = world.bounds.__class__(max_bytes=10_000)
    async with world.http() as http:
        assert (await http.post("/v1/chat/completions", content=b"x" * 20_000)).status_code == 413
        assert (await upload(http, PURPOSE, ("file", b"x" * 20_000, "in.jsonl"))).status_code == 200


async def test_an_account_cannot_store_without_end(http, world):
    world.file_rules = world.file_rules.model_copy(update={"max_account_bytes": 3000})
    async with world.http() as http:
        assert (await upload(http, PURPOSE, ("file", b"x" * 2000, "in.jsonl"))).status_code == 200
        answer = await upload(http, PURPOSE, ("file", b"x" * 2000, "in.jsonl"))
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert len(world.objects.objects) == 1


async def test_files_of_another_account_do_not_exist(http, world):
    file_id = (await upload(http, PURPOSE, FILE)).json()["id"]
    world.principal(OTHER, key_id="key-2", account="acct-2")
    async with world.http(authorization=f"Bearer {OTHER}") as other:
        for method, path in [
            ("GET", f"/v1/files/{file_id}"),
            ("GET", f"/v1/files/{file_id}/content"),
            ("DELETE", f"/v1/files/{file_id}"),
        ]:
            theirs = await other.request(method, path)
            missing = await other.request(method, path.replace(file_id, "file-none"))
            assert theirs.status_code == missing.status_code == 404
            expected = missing.json()["error"]["message"].replace("file-none", file_id)
            assert theirs.json()["error"] == {**missing.json()["error"], "message": expected}
            assert expected == f"No such File object: {file_id}"
        assert (await other.get("/v1/files")).json()["data"] == []
        assert (await other.get("/v1/files", params={"after": file_id})).status_code == 404
    assert (await http.get(f"/v1/files/{file_id}")).status_code == 200


async def test_the_key_of_a_deleted_file_is_nowhere_on_the_disk(client, world, batch_stores, tmp_path):
    file = await client.files.create(file=("in.jsonl", LINE), purpose="batch")
    async with batch_stores.database.read() as connection:
        (key,) = (await connection.scalars(select(files.c.wrapped_key))).all()

    def is_written() -> bool:
        return any(key in path.read_bytes() for path in tmp_path.glob("files.db*"))

    assert is_written()
    async with run_batches(world, batch_stores, intervals=Intervals(database_log_s=0.02)):
        await client.files.delete(file.id)
        await eventually(lambda: not is_written())


async def test_a_strict_key_stores_nothing(http, world):
    world.principal(retention="strict")
    answer = await upload(http, PURPOSE, FILE)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "retention_policy"
    assert world.objects.objects == {}


async def test_a_key_without_the_scope_reaches_no_file(http, world):
    world.principal(operations=frozenset({"chat"}))
    for answer in (await upload(http, PURPOSE, FILE), await http.get("/v1/files"), await http.get("/v1/files/file-x")):
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "insufficient_permissions"


async def test_a_file_in_use_is_not_deleted(http, world, file_store):
    file_id = (await upload(http, PURPOSE, FILE)).json()["id"]
    batch_id = await insert_batch(file_store._database, input_file_id=file_id, account="acct_1")
    answer = await http.delete(f"/v1/files/{file_id}")
    assert answer.status_code == 409
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["code"] == "file_in_use"
    assert batch_id in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "param"), [("limit=0", "limit"), ("limit=x", "limit"), ("limit=10001", "limit"), ("order=up", "order")]
)
async def test_a_query_that_is_not_valid_is_refused(http, query, param):
    answer = await http.get(f"/v1/files?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_a_store_that_is_away_or_full_is_told_as_such(http, world):
    file_id = (await upload(http, PURPOSE, FILE)).json()["id"]
    world.objects.room_bytes = 10
    answer = await upload(http, PURPOSE, FILE)
    assert answer.status_code == 507
    assert answer.json()["error"]["type"] == "server_error"
    world.objects.is_away = True
    for answer in (await upload(http, PURPOSE, FILE), await http.get(f"/v1/files/{file_id}/content")):
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
    assert (await http.delete(f"/v1/files/{file_id}")).status_code == 200
    assert [file["id"] for file in (await http.get("/v1/files")).json()["data"]] == []


async def test_no_content_is_logged(http, world, caplog):
    await upload(http, PURPOSE, ("file", b"Kanarienvogel\n", "Kanarienvogel.jsonl"))
    assert "Kanarienvogel" not in caplog.text
    assert "Kanarienvogel" not in repr(world.log.records)
