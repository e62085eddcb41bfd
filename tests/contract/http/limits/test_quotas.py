"""How much an account may store, by its tier."""

import asyncio

from deployments.state.identity.tiers import Tiers
from tests.contract.http.answers import MODEL
from tests.contract.http.batch_calls import finish, jsonl, line, lines_of, submit
from tests.contract.http.batches.conftest import files_url, on_both_databases  # noqa: F401  It is a fixture.
from tests.contract.http.conftest import run_batches
from tests.contract.state.shelf import num_bytes_of
from tests.waiting import eventually

KIB = 1024
RESPONSES = "/v1/responses"


def allow(world, **limits: int) -> None:
    world.tiers = Tiers.model_validate({"standard": limits})


def form(num_bytes: int) -> dict[str, object]:
    return {"files": {"file": ("a.txt", b"x" * num_bytes)}, "data": {"purpose": "user_data"}}


def announced(num_bytes: int) -> dict[str, object]:
    return {"json": {"bytes": num_bytes, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data"}}


def is_refused(answer) -> bool:
    if answer.status_code == 200:
        return False
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (429, "insufficient_quota", "insufficient_quota")
    assert answer.headers["x-should-retry"] == "false"
    return True


@on_both_databases
async def test_files_and_uploads_share_the_bytes_of_the_tier(world, file_store):
    allow(world, file_bytes=10 * KIB)
    async with world.http() as http:
        file = await http.post("/v1/files", **form(6 * KIB))
        assert is_refused(await http.post("/v1/files", **form(6 * KIB)))
        assert is_refused(await http.post("/v1/uploads", **announced(6 * KIB)))
        assert not is_refused(await http.post("/v1/uploads", **announced(4 * KIB)))
        assert is_refused(await http.post("/v1/files", **form(1)))
        await http.delete(f"/v1/files/{file.json()['id']}")
        assert not is_refused(await http.post("/v1/files", **form(6 * KIB)))


@on_both_databases
async def test_uploads_at_once_cannot_pass_the_bytes_together(world, file_store):
    allow(world, file_bytes=10 * KIB)
    go_on = asyncio.Event()

    async def slowly():
        sent = b"x" * 4 * KIB
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        yield head + sent
        await go_on.wait()
        yield b'\r\n--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--b--\r\n'

    async with world.http() as http:
        headers = {"content-type": "multipart/form-data; boundary=b", "content-length": str(4 * KIB + 158)}
        sending = [asyncio.create_task(http.post("/v1/files", content=slowly(), headers=headers)) for _ in range(5)]
        await eventually(lambda: sum(task.done() for task in sending) == 3)
        go_on.set()
        answers = await asyncio.gather(*sending)
        refused = [is_refused(answer) for answer in answers]
        assert sorted(refused) == [False] * 2 + [True] * 3
        assert await num_bytes_of(file_store, "acct_1") == 8 * KIB  # Nothing is held any more.
        assert not is_refused(await http.post("/v1/files", **form(2 * KIB)))


@on_both_databases
async def test_objects_are_counted_together_however_small_they_are(world, vector_stores):
    allow(world, stored_objects=4)
    async with world.http() as http:
        file = (await http.post("/v1/files", **form(1))).json()["id"]
        made = [
            await http.post("/v1/uploads", **announced(1)),
            await http.post("/v1/vector_stores", json={}),
        ]
        assert not any(map(is_refused, made))
        allow(world, stored_objects=3)
    async with world.http() as http:
        assert is_refused(await http.post("/v1/files", **form(1)))
        assert is_refused(await http.post("/v1/uploads", **announced(1)))
        assert is_refused(await http.post("/v1/vector_stores", json={}))
        await http.delete(f"/v1/files/{file}")
        assert not is_refused(await http.post("/v1/files", **form(1)))


@on_both_databases
async def test_objects_at_once_cannot_pass_their_number_together(world, file_store):
    allow(world, stored_objects=3)
    async with world.http() as http:
        answers = await asyncio.gather(*(http.post("/v1/files", **form(1)) for _ in range(8)))
    assert sorted(map(is_refused, answers)) == [False] * 3 + [True] * 5


async def test_conversations_are_objects(world):
    allow(world, stored_objects=2)
    async with world.http() as http:
        answers = [await http.post("/v1/conversations", json={}) for _ in range(3)]
        assert [is_refused(answer) for answer in answers] == [False, False, True]
        await http.delete(f"/v1/conversations/{answers[0].json()['id']}")
        assert not is_refused(await http.post("/v1/conversations", json={}))


async def test_items_and_responses_share_the_bytes_of_the_tier(world):
    allow(world, item_bytes=100 * KIB)
    said = {"role": "user", "content": "x" * 30 * KIB}
    response = {"model": MODEL, "input": "Say hello."}
    async with world.http() as http:
        talk = (await http.post("/v1/conversations", json={"items": [said]})).json()["id"]
        answers = await asyncio.gather(
            *(http.post(f"/v1/conversations/{talk}/items", json={"items": [said]}) for _ in range(6))
        )
        assert sorted(map(is_refused, answers)) == [False] * 2 + [True] * 4
        world.clock.advance(2)
        long = {"model": MODEL, "input": "x " * 8 * KIB}
        assert is_refused(await http.post("/v1/responses", json=long))
        assert not is_refused(await http.post("/v1/responses", json={**long, "store": False}))
        chat = {"model": MODEL, "messages": [said]}
        assert not is_refused(await http.post("/v1/chat/completions", json=chat))
        assert is_refused(await http.post("/v1/chat/completions", json={**chat, "store": True}))
        assert not is_refused(await http.delete(f"/v1/conversations/{talk}"))
        world.clock.advance(2)
        assert not is_refused(await http.post("/v1/responses", json=response))
        assert not is_refused(await http.post("/v1/conversations", json={"items": [said]}))


async def test_lines_of_batches_pass_the_same_bytes(world, batch_stores):
    allow(world, item_bytes=100 * KIB)
    bodies = [{"model": MODEL, "input": "x " * 20 * KIB, "store": store} for store in (True, False)] * 3
    lines = [line(number, RESPONSES, body=body) for number, body in enumerate(bodies)]
    async with run_batches(world, batch_stores, max_lines_in_flight=1):
        client = world.client()
        batch = await finish(client, await submit(client, jsonl(*lines), RESPONSES))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (5, 1)
    (refused,) = await lines_of(client, batch.error_file_id)
    assert refused["response"]["body"]["error"]["code"] == "insufficient_quota"
