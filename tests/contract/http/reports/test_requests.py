"""Public reports about requests as such: how keys and models are named, and what lists and files do."""

import asyncio

import httpx2
import pytest

from tests.contract.http.answers import MODEL, SECRET
from tests.contract.http.batch_calls import CHAT, finish, jsonl, line, submit
from tests.contract.http.conftest import serve


@pytest.mark.parametrize("given", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer  {}", "Bearer {} "])
async def test_a_key_is_taken_in_any_spelling_of_bearer(world, given):
    """SamSaffron/term-llm#414, jetkvm/cloud-api#85."""
    async with world.http(authorization=given.format(SECRET)) as http:
        assert (await http.get("/v1/models")).status_code == 200


@pytest.mark.parametrize("given", ["{}", "Basic {}", "Bearer", "Bearer {0} {0}"])
async def test_a_key_that_is_sent_in_another_way_is_a_401_without_the_key(world, given):
    """SamSaffron/term-llm#414."""
    async with world.http(authorization=given.format(SECRET)) as http:
        answer = await http.get("/v1/models")
    assert answer.status_code == 401
    assert SECRET not in answer.text


@pytest.mark.parametrize("path", [MODEL, MODEL.replace("/", "%2F"), MODEL.replace("/", "%2f"), MODEL + "/"])
async def test_a_model_with_a_slash_is_found(world, path):
    """BerriAI/litellm#37271, #13128."""
    async with serve(world.app()) as address, httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}) as http:
        assert (await http.get(f"{address}/v1/models/{path}")).json()["id"] == MODEL


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("文件.txt", "文件.txt"),
        ("😀.txt", "😀.txt"),
        ("../../etc/passwd", "passwd"),
        ("folder/a.txt", "a.txt"),
        ("x" * 300 + ".txt", None),
    ],
)
async def test_the_name_of_a_file_keeps_its_letters_and_loses_its_path(world, file_store, name, kept):
    """significa/app-distribution-server#39, Mintplex-Labs/anything-llm#3562, oomol-lab/open-connector#249."""
    async with world.http() as http:
        answer = await http.post("/v1/files", files={"file": (name, b"x")}, data={"purpose": "user_data"})
    assert answer.status_code == 200, answer.text
    assert kept is None or answer.json()["filename"] == kept
    assert "/" not in answer.json()["filename"]


async def test_a_file_without_a_name_is_refused_with_the_reason(world, file_store):
    async with world.http() as http:
        answer = await http.post("/v1/files", files={"file": (None, b"x")}, data={"purpose": "user_data"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "file"
    assert "filename" in answer.json()["error"]["message"]


async def test_pages_of_files_end_and_leave_none_out(world, file_store):
    """BerriAI/litellm#36324, #37150."""
    async with world.http() as http:
        made = [
            (await http.post("/v1/files", files={"file": (f"{n}.txt", b"x")}, data={"purpose": "user_data"})).json()[
                "id"
            ]
            for n in range(7)
        ]
        for limit in (1, 3, 7, 100):
            seen, after = [], {}
            for _ in range(10):
                page = (await http.get("/v1/files", params={"limit": limit, **after})).json()
                seen += [file["id"] for file in page["data"]]
                if not page["has_more"]:
                    break
                after = {"after": page["last_id"]}
            assert sorted(seen) == sorted(made)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + jsonl(line(0), line(1)),
        jsonl(line(0), line(1)).replace(b"\n", b"\r\n"),
        jsonl(line(0)) + b"\n  \n" + jsonl(line(1)),
        jsonl(line(0), line(1)).rstrip(b"\n"),
    ],
    ids=["byte order mark", "CRLF", "blank lines", "no last line end"],
)
async def test_a_batch_file_may_come_from_any_editor(world, batching, content):
    """mkht/PSOpenAI#19, wbolster/jsonlines#68."""
    client = world.client()
    batch = await finish(client, await submit(client, content))
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)


@pytest.mark.parametrize(
    "content",
    [
        jsonl(line(0), line(1)).decode().encode("utf-16"),
        jsonl(line(0), line(0)),
        jsonl({**line(0), "custom_id": 7}),
        jsonl({name: value for name, value in line(0).items() if name != "custom_id"}),
        jsonl([1, 2]),
        jsonl(None),
        jsonl({**line(0), "body": "text"}),
        jsonl({**line(0), "method": "GET"}),
        jsonl(line(0, url="https://api.example.com" + CHAT)),
    ],
    ids=["UTF-16", "equal names", "number", "no name", "list", "null", "text", "GET", "whole url"],
)
async def test_a_batch_file_that_is_wrong_fails_with_its_line(world, batching, content):
    """llm-d/llm-d-batch-gateway#147, headroomlabs-ai/headroom#2316, openai/openai-python#2497."""
    client = world.client()
    batch = await finish(client, await submit(client, content))
    assert batch.status == "failed"
    assert batch.errors.data[0].line is not None


async def test_a_batch_is_cancelled_at_once_twice_and_not_after_its_end(world, batching):
    """BerriAI/litellm#41753, #37148."""
    client = world.client()
    batch = await submit(client, jsonl(*map(line, range(3))))
    await client.batches.cancel(batch.id)
    async with world.http() as http:
        again = await http.post(f"/v1/batches/{batch.id}/cancel")
        assert again.status_code in (200, 409)
        ended = await finish(client, batch)
        assert ended.status in ("cancelled", "completed")
        late = await http.post(f"/v1/batches/{batch.id}/cancel")
    assert (late.status_code, ended.status) in ((409, "completed"), (200, "cancelled"), (409, "cancelled"))


async def test_turns_that_come_at_once_keep_their_items_together(world):
    """vllm-project/agentic-api#48, ogx-ai/ogx#4718."""
    client = world.client()
    talk = await client.conversations.create()
    await asyncio.gather(
        *(client.responses.create(model=MODEL, input=f"Turn {n}", conversation=talk.id) for n in range(6))
    )
    items = [item async for item in client.conversations.items.list(talk.id, order="asc", limit=3)]
    assert len(items) == 12
    asked = [item.content[0].text for item in items[::2]]
    assert sorted(asked) == [f"Turn {n}" for n in range(6)]
    assert {item.role for item in items[1::2]} == {"assistant"}
