"""Files and images in a response's input: carried along or stored, read for each turn, kept as references."""

import logging
from base64 import b64encode

import openai
import pytest

from deployments.models.contract.engine import ModelCard
from tests.contract.http.answers import MODEL
from tests.contract.http.background_calls import ended
from tests.contract.http.response_calls import OTHER, lines_of, messages
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
READ = "such as .txt, .md, .csv, .json, .html or source code"


@pytest.fixture
def client(world, file_store) -> openai.AsyncOpenAI:
    return world.client()


def sees(world) -> None:
    """Have the model take images."""
    card: ModelCard = model_card(MODEL, "chat", "responses", has_images=True)
    world.chat = ScriptedEngine(card, world.chat.script)
    world.directory = MemoryDirectory([world.chat, world.embeddings])


async def upload(client, name: str, content: bytes) -> str:
    return (await client.files.create(file=(name, content), purpose="user_data")).id


def asking(*parts) -> list[dict]:
    return [{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, *parts]}]


def file(file_id: str) -> dict:
    return {"type": "input_file", "file_id": file_id}


def data(kind: str, content: bytes) -> dict:
    return {"type": "input_file", "file_data": f"data:{kind};base64,{b64encode(content).decode()}"}


async def test_a_stored_file_is_read_into_the_prompt_of_each_turn_and_kept_as_a_reference(world, client):
    file_id = await upload(client, "notes.md", "\ufeffThe river is blåa.".encode())
    first = await client.responses.create(model=MODEL, input=asking(file(file_id)))
    text = "What is this?\nnotes.md:\nThe river is blåa."
    assert messages(world) == [{"role": "user", "content": text}]
    (item,) = [item async for item in client.responses.input_items.list(first.id)]
    assert item.content[1].model_dump(exclude_none=True) == file(file_id)
    assert "river" not in repr(await world.stored.turns())
    await client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
    assert [message["content"] for message in messages(world)][::2] == [text, "And?"]


async def test_what_is_read_is_counted_and_bounded(world, client, monkeypatch):
    file_id = await upload(client, "a.txt", b"x" * 4000)
    counted = await client.responses.input_tokens.count(model=MODEL, input=asking(file(file_id)))
    assert counted.input_tokens
    world.principal(tokens_per_minute=500)
    with pytest.raises(openai.RateLimitError):
        await client.responses.create(model=MODEL, input=asking(file(file_id)), max_output_tokens=10)
    world.principal()
    monkeypatch.setattr("serve_app.operations.responses.prompt.attachments.MAX_BYTES", 7999)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model=MODEL, input=asking(file(file_id), file(file_id)))
    assert (caught.value.param, caught.value.code) == ("input[0].content[2].file_id", "file_too_large")
    monkeypatch.setattr("serve_app.operations.responses.prompt.attachments.MAX_FILES", 1)
    other = await upload(client, "b.txt", b"y")
    with pytest.raises(openai.BadRequestError, match="Too many files") as caught:
        await client.responses.create(model=MODEL, input=asking(file(file_id), file(other)))
    assert caught.value.param == "input[0].content[2].file_id"


async def test_a_tool_may_answer_with_a_file(world, client):
    file_id = await upload(client, "a.txt", b"It rains.")
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [file(file_id)]}
    await client.responses.create(model=MODEL, input=[call, output])
    assert messages(world)[-1] == {"role": "tool", "tool_call_id": "c", "content": "a.txt:\nIt rains."}


async def test_a_background_response_a_conversation_and_a_batch_line_read_files(world, client):
    file_id = await upload(client, "a.txt", b"It rains.")
    begun = await client.responses.create(model=MODEL, input=asking(file(file_id)), background=True)
    assert (await ended(client.responses, begun.id)).status == "completed"
    talk = await client.conversations.create(items=asking(file(file_id)))
    await client.responses.create(model=MODEL, input="And?", conversation=talk.id)
    ((status, _),) = await lines_of(world, {"model": MODEL, "input": asking(file(file_id))})
    assert status == 200
    assert all("It rains." in messages(world, number)[0]["content"] for number in range(3))


async def test_a_stored_image_is_shown_to_a_model_that_sees(world, client):
    file_id = await upload(client, "a.bin", PNG)
    image = {"type": "input_image", "file_id": file_id, "detail": "low"}
    with pytest.raises(openai.BadRequestError, match="not supported with this model") as caught:
        await client.responses.create(model=MODEL, input=asking(image))
    assert (caught.value.param, caught.value.code) == ("input", "invalid_value")
    sees(world)
    client = world.client()
    first = await client.responses.create(model=MODEL, input=asking(image))
    url = "data:image/png;base64," + b64encode(PNG).decode()
    shown = messages(world)[0]["content"][1]
    assert shown == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    (item,) = [item async for item in client.responses.input_items.list(first.id)]
    assert (item.content[1].file_id, item.content[1].image_url) == (file_id, None)
    text = await upload(client, "a.png", b"no image")
    with pytest.raises(openai.BadRequestError, match="no PNG, JPEG, WebP or GIF image") as caught:
        await client.responses.create(model=MODEL, input=asking({**image, "file_id": text}))
    assert (caught.value.param, caught.value.code) == ("input[0].content[1].file_id", "unsupported_value")


@pytest.mark.parametrize(
    ("start", "kind"), [(b"\xff\xd8\xff\xe0", "jpeg"), (b"GIF89a", "gif"), (b"RIFF\0\0\0\0WEBP", "webp")]
)
async def test_the_kind_of_an_image_is_read_from_its_content(world, client, start, kind):
    sees(world)
    client = world.client()
    image = {"type": "input_image", "file_id": await upload(client, "a.png", start)}
    await client.responses.create(model=MODEL, input=asking(image))
    assert messages(world)[0]["content"][1]["image_url"]["url"].startswith(f"data:image/{kind};base64,")


@pytest.mark.parametrize("content", [b"%PDF-1.7 text", b"PK\x03\x04\x00", b"\xff\xfea\x00", PNG])
async def test_files_that_are_no_text_are_refused_with_what_is_read(client, content):
    file_id = await upload(client, "a.txt", content)
    for part, field in ((file(file_id), "file_id"), (data("text/plain", content), "file_data")):
        with pytest.raises(openai.BadRequestError, match=READ) as caught:
            await client.responses.create(model=MODEL, input=asking(part))
        assert caught.value.body == {
            "message": caught.value.body["message"],
            "type": "invalid_request_error",
            "param": f"input[0].content[1].{field}",
            "code": "unsupported_value",
        }


@pytest.mark.parametrize("kind", ["text/csv", "application/json", "text/x-python;charset=utf-8", "application/x-yaml"])
async def test_files_of_text_are_carried_as_data_urls(world, client, kind):
    await client.responses.create(model=MODEL, input=asking({**data(kind, b"a: 1"), "filename": "a"}))
    assert messages(world)[0]["content"].endswith("?\na:\na: 1")


async def test_what_is_no_base64_is_named_by_its_place(client):
    with pytest.raises(openai.BadRequestError) as caught:
        part = {"type": "input_file", "file_data": "data:text/plain;base64,A"}
        await client.responses.create(model=MODEL, input=asking(part))
    assert (caught.value.param, caught.value.code) == ("input[0].content[1].file_data", "invalid_value")


async def test_files_that_are_not_there_answer_alike(world, client):
    world.principal(OTHER, key_id="key_2", account="acct_2")
    foreign = await upload(world.client(OTHER), "a.txt", b"x")
    deleted = await upload(client, "a.txt", b"x")
    await client.files.delete(deleted)
    expired = await upload(client, "a.txt", b"x")
    await client.responses.create(model=MODEL, input=asking(file(expired)))
    world.clock.advance(40 * 86_400)
    fresh = await client.responses.create(model=MODEL, input="x")
    for file_id in (foreign, deleted, expired, "file-none", "\0"):
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.create(model=MODEL, input=asking(file(file_id)), previous_response_id=fresh.id)
        assert caught.value.body == {
            "message": f"No such File object: {file_id}".replace("\0", "?"),
            "type": "invalid_request_error",
            "param": "input[0].content[1].file_id",
            "code": None,
        }


async def test_a_turn_whose_file_is_gone_cannot_be_continued(world, client):
    file_id = await upload(client, "a.txt", b"x")
    first = await client.responses.create(model=MODEL, input=asking(file(file_id)))
    talk = await client.conversations.create(items=asking(file(file_id)))
    await client.files.delete(file_id)
    for brought_by, value in (("previous_response_id", first.id), ("conversation", talk.id)):
        with pytest.raises(openai.NotFoundError, match=f"No such File object: {file_id}") as caught:
            await client.responses.create(model=MODEL, input="And?", **{brought_by: value})
        assert caught.value.param == brought_by


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"retention": "strict"}, "retention_policy"),
        ({"operations": frozenset({"responses"})}, "insufficient_permissions"),
    ],
)
async def test_keys_that_may_not_use_files_may_not_read_them_here(world, client, overrides, code):
    file_id = await upload(client, "a.txt", b"x")
    world.principal(**overrides)
    with pytest.raises(openai.PermissionDeniedError) as caught:
        await client.responses.create(model=MODEL, input=asking(file(file_id)))
    assert caught.value.code == code
    assert (await client.responses.create(model=MODEL, input=asking(data("text/plain", b"x")))).output_text


async def test_a_store_that_is_away_is_a_503(world, client):
    file_id = await upload(client, "a.txt", b"x")
    world.objects.is_away = True
    with pytest.raises(openai.APIStatusError) as caught:
        await client.responses.create(model=MODEL, input=asking(file(file_id)))
    assert caught.value.status_code == 503


async def test_what_is_read_is_written_nowhere(world, client, caplog):
    caplog.set_level(logging.INFO)
    canary = "kanarienvogel-93f1"
    file_id = await upload(client, f"{canary}.txt", canary.encode())
    await client.responses.create(model=MODEL, input=asking(file(file_id)))
    world.chat.script = lambda request: Script([ValueError(messages(world)[0]["content"])])
    with pytest.raises(openai.InternalServerError) as caught:
        await client.responses.create(model=MODEL, input=asking(file(file_id)))
    written = [caught.value.message, repr(world.log.records), repr(await world.stored.turns()), caplog.text]
    assert "manta.errors" in caplog.text
    assert not [text for text in written if canary in text]
