"""Uploads in parts, with OpenAI's client and without: a file that comes in any order, checked, or refused and gone."""

import asyncio
import hashlib
import os

import openai
import pytest

from deployments.state.uploads.rows import MAX_PART_BYTES
from tests.contract.http.answers import SECRET
from tests.contract.http.conftest import serve

OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrs"
MIB = 1024 * 1024
FORM = {"content-type": "multipart/form-data; boundary=xyz"}


@pytest.fixture
def client(world, file_store) -> openai.AsyncOpenAI:
    return world.client()


@pytest.fixture
async def http(world, file_store):
    async with world.http() as http:
        yield http


def body(**more):
    return {"bytes": 6, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data", **more}


async def begin(http, **more):
    answer = await http.post("/v1/uploads", json=body(**more))
    assert answer.status_code == 200, answer.text
    return f"/v1/uploads/{answer.json()['id']}"


async def add(http, upload, data=b"abcdef"):
    answer = await http.post(f"{upload}/parts", files={"data": data})
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def refused(answer, status, param, code=None):
    error = answer.json()["error"]
    told = (answer.status_code, error["type"], error["param"], error["code"])
    assert told == (status, "invalid_request_error", param, code), answer.text
    return error["message"]


async def test_the_client_uploads_a_file_in_chunks(client, tmp_path, world):
    content = os.urandom(2 * MIB + 77)
    (tmp_path / "large.bin").write_bytes(content)
    upload = await client.uploads.upload_file_chunked(
        file=tmp_path / "large.bin",
        mime_type="application/octet-stream",
        purpose="user_data",
        part_size=MIB,
        md5=hashlib.md5(content).hexdigest(),
    )
    assert (upload.object, upload.status, upload.bytes) == ("upload", "completed", len(content))
    assert upload.file == await client.files.retrieve(upload.file.id)
    assert (upload.file.filename, upload.file.bytes, upload.file.status) == ("large.bin", len(content), "processed")
    assert (await client.files.content(upload.file.id)).content == content
    assert len(world.objects.objects) == 1


async def test_parts_come_side_by_side_and_are_put_in_order_at_the_end(client, world):
    expiry = {"anchor": "created_at", "seconds": 3600}
    upload = await client.uploads.create(**body(bytes=9, expires_after=expiry))
    assert (upload.status, upload.file, upload.purpose) == ("pending", None, "user_data")
    assert (upload.created_at, upload.expires_at) == (int(world.clock()), int(world.clock()) + 3600)
    parts = await asyncio.gather(
        *(client.uploads.parts.create(upload.id, data=one) for one in (b"ghi", b"abc", b"def"))
    )
    assert {(part.object, part.upload_id) for part in parts} == {("upload.part", upload.id)}
    order = [parts[index].id for index in (1, 2, 0)]
    done = await client.uploads.complete(upload.id, part_ids=order)
    assert done.file.expires_at == done.file.created_at + 3600
    assert (await client.files.content(done.file.id)).text == "abcdefghi"
    assert await client.uploads.complete(upload.id, part_ids=order) == done  # As a client does that heard no answer.


async def test_an_uploaded_batch_is_as_any_other_file(world, batching):
    client = world.client()
    line = b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}\n'
    upload = await client.uploads.upload_file_chunked(
        file=line, filename="in.jsonl", bytes=len(line), mime_type="application/jsonl", purpose="batch", part_size=30
    )
    batch = await client.batches.create(
        input_file_id=upload.file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert batch.input_file_id == upload.file.id


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"bytes": 0}, "bytes", "integer_below_min_value"),
        ({"bytes": 8 * 1024**3 + 1}, "bytes", "integer_above_max_value"),
        ({"bytes": 201 * MIB, "purpose": "batch", "filename": "a.jsonl"}, "bytes", "integer_above_max_value"),
        ({"bytes": 2**70}, "bytes", "integer_above_max_value"),
        ({"bytes": "6"}, "bytes", "invalid_type"),
        ({"purpose": "batch"}, "filename", "invalid_file_format"),
        ({"purpose": "x"}, "purpose", "invalid_value"),
        ({"filename": ""}, "filename", "empty_string"),
        ({"filename": "x" * 256}, "filename", "string_above_max_length"),
        ({"mime_type": None}, "mime_type", "invalid_type"),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, "expires_after.seconds", "integer_below_min_value"),
        ({"part_size": 1}, "part_size", "unknown_parameter"),
    ],
)
async def test_an_upload_that_is_not_valid_is_refused(http, change, param, code):
    refused(await http.post("/v1/uploads", json=body(**change)), 400, param, code)


async def test_names_lose_their_folders(http):
    assert (await http.post("/v1/uploads", json=body(filename="../../etc/a.txt"))).json()["filename"] == "a.txt"


async def test_a_file_of_eight_gibibytes_may_be_announced(http):
    assert (await http.post("/v1/uploads", json=body(bytes=8 * 1024**3))).status_code == 200


async def test_what_is_no_part_is_refused_and_nothing_is_kept(http, world):
    upload = await begin(http)
    empty = await http.post(f"{upload}/parts", content=b"--xyz--\r\n", headers=FORM)
    assert empty.status_code == 400
    refused(await http.post(f"{upload}/parts", data={"other": "x"}, files={}), 400, None)
    refused(await http.post(f"{upload}/parts", files={"file": b"x"}), 400, "file", "unknown_parameter")
    twice = await http.post(f"{upload}/parts", files=[("data", b"x"), ("data", b"y")])
    refused(twice, 400, "data")
    refused(await http.post(f"{upload}/parts", json={"data": "x"}), 400, None)
    assert world.objects.objects == {}


async def test_a_part_of_64_mebibytes_fits_and_a_byte_more_does_not(http, world):
    upload = await begin(http, bytes=MAX_PART_BYTES)
    part = await add(http, upload, b"x" * MAX_PART_BYTES)
    answer = await http.post(f"{upload}/parts", files={"data": b"x" * (MAX_PART_BYTES + 1)})
    refused(answer, 413, "data")
    assert len(world.objects.objects) == 1
    answer = await http.post(f"{upload}/complete", json={"part_ids": [part]})
    assert answer.json()["file"]["bytes"] == MAX_PART_BYTES


async def test_parts_that_are_not_the_file_are_refused_and_may_be_named_anew(http):
    upload = await begin(http)
    part, other = await add(http, upload), await add(http, upload, b"abc")
    for change, param, code in (
        ({"part_ids": [part, "part_none"]}, "part_ids", "invalid_value"),
        ({"part_ids": [part, part]}, "part_ids", "upload_size_mismatch"),
        ({"part_ids": [other]}, "part_ids", "upload_size_mismatch"),
        ({"part_ids": []}, "part_ids", "empty_array"),
        ({"part_ids": [1]}, "part_ids[0]", "invalid_type"),
        ({"part_ids": ["x"] * 10_001}, "part_ids", "array_above_max_length"),
        ({"part_ids": [part], "md5": "x"}, "md5", "invalid_value"),
        ({"part_ids": [part], "md5": "0" * 32}, "md5", "upload_checksum_mismatch"),
    ):
        refused(await http.post(f"{upload}/complete", json=change), 400, param, code)
    done = await http.post(f"{upload}/complete", json={"part_ids": [part], "md5": hashlib.md5(b"abcdef").hexdigest()})
    assert done.json()["status"] == "completed"


async def test_an_upload_that_has_ended_is_refused_by_its_status(http, world):
    async def check(upload, part, code, *paths):
        for path in paths:
            sent = {"files": {"data": b"x"}} if path == "parts" else {}
            sent = {"json": {"part_ids": [part], "md5": "0" * 32}} if path == "complete" else sent
            answer = await http.post(f"{upload}/{path}", **sent)
            message = refused(answer, 409, "upload_id", code)
            assert code.removeprefix("upload_") in message
            assert answer.headers["x-should-retry"] == "false"

    uploads = [await begin(http) for _ in range(3)]
    parts = [await add(http, upload) for upload in uploads]
    assert (await http.post(f"{uploads[0]}/cancel")).json()["status"] == "cancelled"
    assert (await http.post(f"{uploads[0]}/cancel")).json()["status"] == "cancelled"
    await check(uploads[0], parts[0], "upload_cancelled", "parts", "complete")
    await http.post(f"{uploads[1]}/complete", json={"part_ids": [parts[1]]})
    await check(uploads[1], parts[1], "upload_completed", "parts", "complete", "cancel")
    world.clock.advance(3600)
    await check(uploads[2], parts[2], "upload_expired", "parts", "complete", "cancel")
    assert await world.uploads.sweep() == 3
    assert len(world.objects.objects) == 1


async def test_uploads_of_another_account_do_not_exist(http, world):
    upload = await begin(http)
    part = await add(http, upload)
    world.principal(OTHER, key_id="key-2", account="acct-2")
    async with world.http(authorization=f"Bearer {OTHER}") as other:
        for path, sent in (
            ("parts", {"files": {"data": b"x"}}),
            ("complete", {"json": {"part_ids": [part]}}),
            ("cancel", {}),
        ):
            message = refused(await other.post(f"{upload}/{path}", **sent), 404, "upload_id")
            assert message == f"No such Upload object: {upload.rpartition('/')[2]}"
    assert (await http.post(f"{upload}/complete", json={"part_ids": [part]})).status_code == 200


async def test_an_account_announces_no_more_than_it_has_room_for(http, world):
    world.file_rules = world.file_rules.model_copy(update={"max_account_bytes": 3000})
    async with world.http() as http:
        upload = await begin(http, bytes=2000)
        over = await http.post("/v1/uploads", json=body(bytes=2000))
        assert (over.status_code, over.json()["error"]["code"]) == (429, "insufficient_quota")
        await http.post(f"{upload}/cancel")
        await begin(http, bytes=2000)


async def test_a_key_needs_the_scope_of_files_and_may_keep_them(world, file_store):
    world.principal(operations=["chat"])
    async with world.http() as http:
        assert (await http.post("/v1/uploads", json=body())).status_code == 403
    world.principal(retention="strict")
    async with world.http() as http:
        refused(await http.post("/v1/uploads", json=body()), 403, None, "retention_policy")


async def test_a_real_server_takes_the_parts_of_the_real_client(world, file_store):
    content = os.urandom(3 * MIB)
    async with serve(world.app()) as address, openai.AsyncOpenAI(api_key=SECRET, base_url=f"{address}/v1") as client:
        upload = await client.uploads.upload_file_chunked(
            file=content, filename="a.bin", bytes=len(content), mime_type="x", purpose="assistants", part_size=MIB
        )
        assert (await client.files.content(upload.file.id)).content == content
