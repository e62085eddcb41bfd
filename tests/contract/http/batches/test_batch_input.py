"""Input files of batches as people write them, and those that are not valid: each fault with its whole answer."""

import orjson
import pytest

from deployments.state.files.content import NewFile
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import BucketStore
from tests.contract.http.answers import MODEL
from tests.contract.http.batch_calls import CHAT, finish, jsonl, line, lines_of, submit
from tests.contract.http.conftest import run_batches

NOT_JSON = "This line is not parseable as valid JSON."
BAD_ID = "The custom_id must be a string of 1 to 512 characters."
DUPLICATE = (
    "The custom_id for this request is a duplicate of another request. The custom_id parameter must be unique for each "
    "request in a batch."
)
EMPTY = "The input file has no requests in it."
CHAT_BODY = line(0)["body"]
BOM = b"\xef\xbb\xbf"


def missing(name: str) -> tuple[str, str, str, int]:
    return ("missing_required_parameter", f"Missing required parameter: '{name}'.", name, 1)


def without(name: str) -> bytes:
    return jsonl({key: value for key, value in line(0).items() if key != name})


FAULTS = {
    "an empty file": (b"", ("empty_file", EMPTY, None, None)),
    "blank lines": (b"\n \r\n\t\n", ("empty_file", EMPTY, None, None)),
    "only a byte order mark": (BOM, ("empty_file", EMPTY, None, None)),
    "no JSON": (b"not json\n", ("invalid_json_line", NOT_JSON, None, 1)),
    "no object": (jsonl(line(0)) + b"[1]\n", ("invalid_json_line", NOT_JSON, None, 2)),
    "JSON over two lines": (b'{"custom_id":\n', ("invalid_json_line", NOT_JSON, None, 1)),
    "after a blank line": (jsonl(line(0)) + b"\n" + b'{"a":' + b"\n", ("invalid_json_line", NOT_JSON, None, 3)),
    "after CRLF": (jsonl(line(0)).replace(b"\n", b"\r\n") + b"x\r\n", ("invalid_json_line", NOT_JSON, None, 2)),
    "after a byte order mark": (BOM + b"x\n", ("invalid_json_line", NOT_JSON, None, 1)),
    "a second byte order mark": (jsonl(line(0)) + BOM + jsonl(line(1)), ("invalid_json_line", NOT_JSON, None, 2)),
    "the last line without its end": (jsonl(line(0)) + b"x", ("invalid_json_line", NOT_JSON, None, 2)),
    "invalid UTF-8": (b'{"custom_id":"\xff"}\n', ("invalid_json_line", NOT_JSON, None, 1)),
    "UTF-16": (jsonl(line(0)).decode().strip().encode("utf-16"), ("invalid_json_line", NOT_JSON, None, 1)),
    "no custom_id": (without("custom_id"), missing("custom_id")),
    "null as custom_id": (jsonl(line(0, custom_id=None)), missing("custom_id")),
    "no method": (without("method"), missing("method")),
    "null as method": (jsonl(line(0, method=None)), missing("method")),
    "no url": (without("url"), missing("url")),
    "null as url": (jsonl(line(0, url=None)), missing("url")),
    "no body": (without("body"), missing("body")),
    "null as body": (jsonl(line(0, body=None)), missing("body")),
    "a number as custom_id": (jsonl(line(0, custom_id=7)), ("invalid_request", BAD_ID, "custom_id", 1)),
    "an empty custom_id": (jsonl(line(0, custom_id="")), ("invalid_request", BAD_ID, "custom_id", 1)),
    "a long custom_id": (jsonl(line(0, custom_id="x" * 513)), ("invalid_request", BAD_ID, "custom_id", 1)),
    "a duplicate custom_id": (jsonl(line(0), line(1), line(0)), ("duplicate_custom_id", DUPLICATE, "custom_id", 3)),
    "another method": (
        jsonl(line(0, method="GET")),
        ("invalid_method", "The method of this request is not supported. Use 'POST'.", "method", 1),
    ),
    "another url": (
        jsonl(line(0), line(1, url="/v1/embeddings")),
        (
            "invalid_url",
            "The URL provided for this request does not match the batch endpoint. It is '/v1/embeddings'; the endpoint "
            "is '/v1/chat/completions'.",
            "url",
            2,
        ),
    ),
    "a list as body": (jsonl(line(0, body=[1])), ("invalid_request", "The body must be an object.", "body", 1)),
    "no model": (
        jsonl(line(0, body={"messages": []})),
        ("missing_required_parameter", "Missing required parameter: 'model'.", "body.model", 1),
    ),
    "no messages": (
        jsonl(line(0, body={"model": MODEL})),
        ("missing_required_parameter", "Missing required parameter: 'messages'.", "body.messages", 1),
    ),
    "a misspelt custom_id": (
        jsonl({"customid": "a", **{name: line(0)[name] for name in ("method", "url", "body")}}),
        ("unknown_parameter", "Unknown parameter: 'customid'. Did you mean 'custom_id'?", "customid", 1),
    ),
    "misspelt messages": (
        jsonl(line(0, body={"model": MODEL, "mesages": []})),
        ("unknown_parameter", "Unknown parameter: 'mesages'. Did you mean 'messages'?", "body.mesages", 1),
    ),
    "a stream": (
        jsonl(line(0, body={**CHAT_BODY, "stream": True})),
        (
            "streaming_unsupported",
            "Chat Completions: Streaming is not supported in the Batch API.",
            "body.stream",
            1,
        ),
    ),
}


def error(code: str, message: str, param: str | None, number: int | None) -> dict[str, object]:
    return {"code": code, "message": message, "param": param, "line": number}


@pytest.mark.parametrize("name", FAULTS)
async def test_an_input_that_is_not_valid_fails_the_batch_and_names_the_line(client, http, world, name):
    content, told = FAULTS[name]
    batch = await finish(client, await submit(client, content))
    shown = (await http.get(f"/v1/batches/{batch.id}")).json()
    assert shown["status"] == "failed"
    assert shown["failed_at"] == int(world.clock())
    assert shown["errors"] == {"object": "list", "data": [error(*told)]}
    assert (shown["output_file_id"], shown["error_file_id"]) == (None, None)
    assert shown["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    assert world.chat.requests == []


@pytest.mark.parametrize(
    ("endpoint", "body", "told"),
    [
        (
            "/v1/completions",
            {"model": MODEL, "prompt": "x", "stream": True},
            ("streaming_unsupported", "Streaming is not supported in the Batch API.", "body.stream", 1),
        ),
        (
            "/v1/completions",
            {"model": MODEL},
            ("missing_required_parameter", "Missing required parameter: 'prompt'.", "body.prompt", 1),
        ),
        (
            "/v1/embeddings",
            {"model": MODEL},
            ("missing_required_parameter", "Missing required parameter: 'input'.", "body.input", 1),
        ),
        (
            "/v1/responses",
            {"model": MODEL},
            ("missing_required_parameter", "Missing required parameter: 'input'.", "body.input", 1),
        ),
        (
            "/v1/embeddings",
            {"model": MODEL, "input": ["x"] * 50_001},
            ("too_many_inputs", "The batch has more than the maximum of 50000 embedding inputs.", "body.input", 1),
        ),
    ],
)
async def test_a_body_that_is_not_valid_for_its_endpoint_is_named(client, endpoint, body, told):
    batch = await finish(client, await submit(client, jsonl(line(0, url=endpoint, body=body)), endpoint=endpoint))
    assert [one.model_dump() for one in batch.errors.data] == [error(*told)]


async def test_each_fault_is_told_up_to_a_hundred(client):
    faulty = [line(number, method="GET") for number in range(150)]
    batch = await finish(client, await submit(client, jsonl(line(200), *faulty)))
    message = "The method of this request is not supported. Use 'POST'."
    wanted = [error("invalid_method", message, "method", number) for number in range(2, 102)]
    assert [one.model_dump() for one in batch.errors.data] == wanted


async def test_an_unknown_model_is_that_line_s_404(client):
    near = MODEL[:-1]
    wrong = [line(1, model="no/such"), line(2, model=near), line(3, body={**CHAT_BODY, "temprature": 1})]
    batch = await finish(client, await submit(client, jsonl(line(0), *wrong)))
    assert (batch.status, batch.errors) == ("completed", None)
    output = await lines_of(client, batch.output_file_id)
    assert output[1]["response"]["status_code"] == 404
    assert output[1]["response"]["body"] == {
        "error": {
            "message": "The model `no/such` does not exist or you do not have access to it. GET /v1/models lists the "
            "models of this key.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert output[2]["response"]["body"]["error"]["message"].endswith(f"Did you mean `{MODEL}`?")
    message = "Unknown parameter: 'temprature'. Did you mean 'temperature'?"
    assert output[3]["response"]["body"]["error"]["message"] == message
    assert await lines_of(client, batch.error_file_id) == output[1:]


async def test_a_line_more_than_fifty_thousand_fails_the_batch(client):
    body = orjson.dumps(CHAT_BODY)
    start, rest = b'{"custom_id":"', b'","method":"POST","url":"%s","body":%s}\n' % (CHAT.encode(), body)
    content = b"".join([start + b"%d" % number + rest for number in range(50_001)])
    batch = await finish(client, await submit(client, content))
    assert batch.status == "failed"
    told = ("too_many_requests", "The input file has more than the maximum of 50000 requests.", None, None)
    assert [one.model_dump() for one in batch.errors.data] == [error(*told)]


async def test_a_line_that_is_too_large_fails_the_batch(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    large = line(1)
    large["body"]["messages"][0]["content"] = "x" * 5000
    async with run_batches(world, batch_stores, max_line_bytes=4096):
        client = world.client()
        batch = await finish(client, await submit(client, jsonl(line(0), large, line(2))))
    told = ("line_too_large", "This line is larger than the limit of 4096 bytes.", None, 2)
    assert [one.model_dump() for one in batch.errors.data] == [error(*told)]


@pytest.fixture
def on_disk(world, tmp_path) -> None:
    """Objects in a directory, for tests whose files are large."""
    world.objects = BucketStore(ResolvedObjectStore((tmp_path / "objects").as_uri()))


async def test_a_line_of_100_mb_fails_the_batch(world, on_disk, batch_stores):
    world.principal(requests_per_minute=10_000)
    async with batch_stores.files.create(NewFile("acct_1", "key_1", "file-large")) as writer:
        await writer.write(jsonl(line(0)) + b'{"custom_id":"')
        for _ in range(100):
            await writer.write(b"x" * 1_000_000)
        await writer.write(b'"}\n' + jsonl(line(0)))
    now = world.clock()
    row = writer.row(purpose="batch", filename="in.jsonl", created_at=now, expires_at=now + 86_400)
    await batch_stores.files.record(row)
    async with run_batches(world, batch_stores):
        client = world.client()
        batch = await client.batches.create(input_file_id="file-large", endpoint=CHAT, completion_window="24h")
        batch = await finish(client, batch)
    assert [one.model_dump() for one in batch.errors.data] == [
        error("line_too_large", "This line is larger than the limit of 67108864 bytes.", None, 2),
        error("duplicate_custom_id", DUPLICATE, "custom_id", 3),
    ]


@pytest.mark.parametrize(
    "content",
    [
        jsonl(line(0), line(1)).replace(b"\n", b"\r\n"),
        jsonl(line(0), line(1)).removesuffix(b"\n"),
        BOM + jsonl(line(0), line(1)),
        BOM + jsonl(line(0), line(1)).replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
        b"\n" + jsonl(line(0)) + b"\n  \n" + jsonl(line(1)) + b"\n\n",
    ],
)
async def test_an_input_is_taken_as_people_write_it(client, content):
    batch = await finish(client, await submit(client, content))
    assert batch.status == "completed"
    output = await lines_of(client, batch.output_file_id)
    assert [one["custom_id"] for one in output] == ["request-0", "request-1"]
