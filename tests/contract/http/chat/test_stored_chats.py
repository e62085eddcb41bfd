"""Chat completions with `store`: found again, listed, changed, and gone when they should be."""

import asyncio

import httpx2
import openai
import orjson
import pytest

from deployments.models.contract.events import Finished, Logprobs, TextDelta
from deployments.state.disk import ReserveReached
from deployments.state.quotas import TooManyItems
from deployments.state.responses.chats import ChatStore
from deployments.state.responses.store import ResponseStore
from deployments.waiting import end
from serve_app.http.departure import DepartureWatch
from tests.contract.http.answers import MODEL, SECRET, USAGE, WORDS, said, telling
from tests.contract.http.batch_calls import finish, jsonl, submit
from tests.contract.http.conftest import run_batches
from tests.contract.http.response_calls import OTHER, calling, calling_custom
from tests.waiting import eventually

HI = [{"role": "user", "content": "Hi."}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CHATS = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def told(world):
    telling(world)


@pytest.fixture
def chats(world):
    return world.client().chat.completions


async def streamed(chats, **body):
    """Return the id of a stream, and its text."""
    stream = await chats.create(model=MODEL, messages=HI, stream=True, **body)
    chunks = [chunk async for chunk in stream]
    return chunks[0].id, "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_what_is_stored_can_be_retrieved_changed_and_deleted(world, chats):
    created = await chats.create(model=MODEL, messages=HI, store=True, metadata={"a": "b"}, temperature=0.5, seed=7)
    found = await chats.retrieve(created.id)
    assert {**found.model_dump(), **created.model_dump(exclude={"metadata"})} == found.model_dump()
    assert (found.metadata, found.temperature, found.seed) == ({"a": "b"}, 0.5, 7)
    assert (await chats.update(created.id, metadata={"c": "d"})).metadata == {"c": "d"}
    assert (await chats.retrieve(created.id)).metadata == {"c": "d"}
    assert (await chats.update(created.id, metadata=None)).metadata == {}
    deleted = await chats.delete(created.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (created.id, "chat.completion.deleted", True)
    assert world.stored.count("chat_completions") == 0
    for call in (chats.retrieve, chats.delete, chats.messages.list, lambda one: chats.update(one, metadata={})):
        with pytest.raises(openai.NotFoundError) as caught:
            await call(created.id)
        assert "Only those that were created with 'store'" in caught.value.body["message"]


@pytest.mark.parametrize("store", [{}, {"store": False}, {"store": None}])
async def test_without_store_nothing_is_stored(world, chats, store):
    created = await chats.create(model=MODEL, messages=HI, metadata={"a": "b"}, **store)
    await streamed(chats, **store)
    assert world.stored.count("chat_completions") == 0
    with pytest.raises(openai.NotFoundError):
        await chats.retrieve(created.id)


async def test_a_key_that_stores_nothing_stores_no_chats(world, chats):
    world.principal(retention="strict")
    created = await chats.create(model=MODEL, messages=HI, store=True)
    assert world.stored.count("chat_completions") == 0
    with pytest.raises(openai.NotFoundError):
        await chats.retrieve(created.id)


@pytest.mark.parametrize(("store", "num_stored"), [({}, 2), ({"store": None}, 2), ({"store": False}, 0)])
async def test_a_key_that_logs_stores_every_chat_whose_request_does_not_forbid_it(world, chats, store, num_stored):
    world.principal(retention="logged")
    await chats.create(model=MODEL, messages=HI, **store)
    await streamed(chats, **store)
    assert world.stored.count("chat_completions") == num_stored


async def test_a_key_that_logs_stores_messages_as_chats(world, chats):
    world.principal(retention="logged")
    async with world.http() as http:
        body = {"model": MODEL, "max_tokens": 20, "messages": HI}
        message = (await http.post("/v1/messages", headers={"x-api-key": SECRET}, json=body)).json()
    (found,) = (await chats.list()).data
    assert found.choices[0].message.content == message["content"][0]["text"]
    assert (found.usage.completion_tokens, found.model) == (USAGE.completion_tokens, MODEL)
    assert (await chats.messages.list(found.id)).data[0].content == "Hi."


async def test_an_answer_that_only_the_key_would_store_does_not_depend_on_it(world, chats, monkeypatch):
    async def fail(*args, **kwargs):
        raise OSError("the disk is gone")

    world.principal(retention="logged")
    monkeypatch.setattr("deployments.state.responses.chats.ChatStore.save", fail)
    assert (await chats.create(model=MODEL, messages=HI)).choices[0].message.content == "".join(WORDS)
    assert (await streamed(chats))[1] == "".join(WORDS)


@pytest.mark.parametrize("error", [TooManyItems(1), ReserveReached("full"), OSError("the database is away")])
async def test_a_chat_that_only_the_key_would_store_needs_no_room(world, chats, monkeypatch, error):
    async def refuse(*args):
        raise error

    world.principal(retention="logged")
    monkeypatch.setattr("deployments.state.quotas.ItemQuota.check", refuse)
    assert (await chats.create(model=MODEL, messages=HI)).choices[0].message.content == "".join(WORDS)
    assert (await streamed(chats))[1] == "".join(WORDS)
    assert world.stored.count("chat_completions") == 0
    with pytest.raises(openai.APIError):
        await chats.create(model=MODEL, messages=HI, store=True)


CALLS = calling(("call_1", "weather", '{"city":"Tallinn"}'), ("call_2", "weather", "{}"), words=("Let me", " see."))


@pytest.mark.parametrize("events", [said(*WORDS), said(*WORDS, num_choices=2), CALLS], ids=["text", "choices", "calls"])
async def test_a_stream_is_stored_as_the_whole_answer_would_be(world, chats, events):
    telling(world, events)
    more = {"n": 2} if len(events) > 5 and events is not CALLS else {}
    body = {"model": MODEL, "messages": HI, "tools": [TOOL], "store": True, **more}
    whole = await chats.retrieve((await chats.create(**body)).id)
    chunks = [chunk async for chunk in await chats.create(**body, stream=True)]
    of_stream = await chats.retrieve(chunks[0].id)
    apart = {"id", "request_id", "created"}
    assert of_stream.model_dump(exclude=apart) == whole.model_dump(exclude=apart)
    assert of_stream.usage.total_tokens == USAGE.total_tokens


async def test_a_stream_of_custom_tools_is_stored_with_their_inputs(world, chats):
    telling(world, calling_custom(("call_1", "go", "go home"), ("call_2", "note", "")))
    tools = [{"type": "custom", "custom": {"name": name}} for name in ("go", "note")]
    completion_id, _ = await streamed(chats, store=True, tools=tools)
    calls = (await chats.retrieve(completion_id)).choices[0].message.tool_calls
    assert [(call.id, call.custom.name, call.custom.input) for call in calls] == [
        ("call_1", "go", "go home"),
        ("call_2", "note", ""),
    ]


async def test_a_stream_of_the_older_functions_is_stored_with_its_call(world, chats):
    telling(world, calling(("call_1", "weather", '{"city":"Tallinn"}')))
    created = await chats.create(model=MODEL, messages=HI, functions=[TOOL["function"]], store=True, stream=True)
    chunks = [chunk async for chunk in created]
    (choice,) = (await chats.retrieve(chunks[0].id)).choices
    assert choice.finish_reason == "function_call"
    assert (choice.message.function_call.name, choice.message.function_call.arguments) == (
        "weather",
        '{"city":"Tallinn"}',
    )


async def test_a_stream_is_stored_before_its_end_is_seen_and_passed_on_as_it_comes(world, live, chats):
    go_on = asyncio.Event()
    telling(world)
    play = world.chat.script

    def hesitate(request):
        script = play(request)
        script.steps = [*script.steps[:-1], go_on, script.steps[-1]]
        return script

    world.chat.script = hesitate
    async with openai.AsyncOpenAI(api_key=SECRET, base_url=f"{live}/v1", max_retries=0) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=HI, store=True, stream=True)
        first = await anext(aiter(stream))
        assert world.stored.count("chat_completions") == 0
        go_on.set()
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "".join(WORDS)
    assert (await chats.retrieve(first.id)).choices[0].message.content == "".join(WORDS)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "prompt", "store", "table"),
    [(CHATS, "messages", ChatStore, "chat_completions"), ("/v1/responses", "input", ResponseStore, "responses")],
)
async def test_a_whole_answer_is_stored_though_its_client_leaves_just_then(
    world, live, monkeypatch, stream, path, prompt, store, table
):
    telling(world)
    is_saving, go_on, save = asyncio.Event(), asyncio.Event(), store.save
    watches = []

    def watch(*args):
        watches.append(DepartureWatch(*args))
        return watches[-1]

    async def save_slowly(*args, **kwargs):
        is_saving.set()
        await go_on.wait()
        return await save(*args, **kwargs)

    monkeypatch.setattr(store, "save", save_slowly)
    monkeypatch.setattr("serve_app.http.sse.DepartureWatch", watch)
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}) as http:
        body = {"model": MODEL, prompt: HI, "store": True, "stream": stream}
        asking = asyncio.create_task(http.post(live + path, json=body))
        await is_saving.wait()
        await end(asking)
    await eventually(lambda: watches[0].has_left)
    go_on.set()
    await eventually(lambda: world.log.records)
    assert world.log.records[0].status == 499
    assert world.stored.count(table) == 1


async def test_an_answer_that_breaks_off_is_not_stored(world, chats):
    telling(world)
    play = world.chat.script

    def break_off(request):
        script = play(request)
        script.steps = [*script.steps[:2], ValueError("broken")]
        return script

    world.chat.script = break_off
    for stream in (False, True):
        with pytest.raises(openai.APIError):
            created = await chats.create(model=MODEL, messages=HI, store=True, stream=stream)
            [chunk async for chunk in created]
    assert world.stored.count("chat_completions") == 0


async def test_an_answer_that_cannot_be_stored_is_an_error(world, chats, monkeypatch):
    async def fail(*args, **kwargs):
        raise OSError("the disk is gone")

    monkeypatch.setattr("deployments.state.responses.chats.ChatStore.save", fail)
    with pytest.raises(openai.InternalServerError) as caught:
        await chats.create(model=MODEL, messages=HI, store=True)
    assert (caught.value.status_code, "could not be stored" in str(caught.value)) == (503, True)
    with pytest.raises(openai.APIError, match="could not be stored"):
        await streamed(chats, store=True)
    assert (await chats.create(model=MODEL, messages=HI)).choices


async def test_the_messages_of_a_chat_are_listed(chats):
    messages = [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look: "}, {"type": "text", "text": "a cat."}],
            "name": "ada",
        },
        {"role": "assistant", "content": "A cat."},
    ]
    created = await chats.create(model=MODEL, messages=messages, store=True)
    listed = [message async for message in chats.messages.list(created.id, limit=2)]
    assert [message.id for message in listed] == [f"{created.id}-{number}" for number in range(3)]
    assert [message.content for message in listed] == ["Be kind.", "Look: a cat.", "A cat."]
    assert listed[0].content_parts is None
    assert [part.text for part in listed[1].content_parts] == ["Look: ", "a cat."]
    assert listed[1].name == "ada"
    page = await chats.messages.list(created.id, order="desc", limit=1)
    assert ([message.content for message in page.data], page.has_more) == (["A cat."], True)
    with pytest.raises(openai.BadRequestError) as caught:
        await chats.messages.list(created.id, after="none")
    assert caught.value.param == "after"


async def test_chats_are_listed_by_model_and_metadata(world, chats):
    made = []
    for metadata in ({"topic": "cats", "user": "1"}, {"topic": "cats"}, {"topic": "dogs"}):
        made.append((await chats.create(model=MODEL, messages=HI, store=True, metadata=metadata)).id)
        world.clock.advance(1)
    await chats.create(model=MODEL, messages=HI)

    async def ids(**query):
        return [chat.id async for chat in chats.list(**query)]

    assert await ids() == await ids(limit=1) == made
    assert await ids(order="desc", limit=2) == made[::-1]
    assert await ids(after=made[0]) == made[1:]
    assert await ids(model=MODEL) == made
    assert await ids(model="other") == []
    assert await ids(metadata={"topic": "cats"}) == made[:2]
    assert await ids(metadata={"topic": "cats", "user": "1"}) == made[:1]
    assert await ids(metadata={"topic": "birds"}) == []
    async with world.http() as http:
        for query, param in (
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("order=up", "order"),
            ("after=none", "after"),
            (f"model={'x' * 257}", "model"),
            (f"metadata[{'x' * 65}]=y", "metadata"),
            (f"metadata[x]={'y' * 513}", "metadata"),
            ("&".join(f"metadata[{n}]=y" for n in range(17)), "metadata"),
        ):
            answer = await http.get(f"{CHATS}?{query}")
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), query
        assert (await http.get(f"{CHATS}?metadata[x%00]=%00")).json()["data"] == []
        assert len((await http.get(f"{CHATS}?metadata=x")).json()["data"]) == 3


async def test_a_page_that_is_too_large_says_so(world, chats, monkeypatch):
    for _ in range(3):
        await chats.create(model=MODEL, messages=HI, store=True)
    monkeypatch.setattr("deployments.state.responses.queries.MAX_READ_BYTES", 1500)
    with pytest.raises(openai.BadRequestError) as caught:
        await chats.list()
    assert caught.value.param == "limit"
    assert [chat async for chat in chats.list(limit=1)]


async def test_foreign_unknown_and_expired_ids_answer_alike(world, chats):
    world.principal(OTHER, key_id="key_2", account="acct_2")
    theirs = world.client(OTHER).chat.completions
    foreign = (await theirs.create(model=MODEL, messages=HI, store=True, metadata={"a": "b"})).id
    expired = (await chats.create(model=MODEL, messages=HI, store=True)).id
    world.clock.advance(86_400)
    foreign = (await theirs.create(model=MODEL, messages=HI, store=True, metadata={"a": "b"})).id
    async with world.http() as http:
        answers = {}
        for one in (foreign, expired, "chatcmpl-none"):
            asked = [
                await http.get(f"{CHATS}/{one}"),
                await http.get(f"{CHATS}/{one}/messages"),
                await http.post(f"{CHATS}/{one}", json={"metadata": {}}),
                await http.delete(f"{CHATS}/{one}"),
            ]
            assert {answer.status_code for answer in asked} == {404}
            answers[one] = {answer.text.replace(one, "ID") for answer in asked}
        assert len(set(map(frozenset, answers.values()))) == 1
        assert (await http.get(CHATS)).json()["data"] == []
        assert (await http.get(f"{CHATS}?metadata[a]=b")).json()["data"] == []
        assert (await http.get(f"{CHATS}?after={foreign}")).status_code == 400
    assert (await theirs.retrieve(foreign)).metadata == {"a": "b"}


async def test_a_key_without_chats_reads_none(world, chats):
    created = await chats.create(model=MODEL, messages=HI, store=True)
    world.principal(operations=["responses"])
    async with world.http() as http:
        for method, path in (
            ("GET", CHATS),
            ("GET", f"{CHATS}/{created.id}"),
            ("GET", f"{CHATS}/{created.id}/messages"),
            ("POST", f"{CHATS}/{created.id}"),
            ("DELETE", f"{CHATS}/{created.id}"),
        ):
            assert (await http.request(method, path)).status_code == 403, (method, path)


async def test_a_change_must_be_metadata(world, chats):
    created = await chats.create(model=MODEL, messages=HI, store=True)
    async with world.http() as http:
        for body, param in (({}, "metadata"), ({"metadata": {"a": 1}}, "metadata"), ({"metadata": {}, "x": 1}, "x")):
            answer = await http.post(f"{CHATS}/{created.id}", content=orjson.dumps(body))
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_line_of_a_batch_stores_its_chat(world, batch_stores, chats):
    line = {"custom_id": "1", "method": "POST", "url": CHATS}
    line["body"] = {"model": MODEL, "messages": HI, "store": True, "metadata": {"of": "batch"}}
    async with run_batches(world, batch_stores):
        client = world.client()
        batch = await finish(client, await submit(client, jsonl(line), CHATS))
    assert batch.request_counts.completed == 1
    (chat,) = (await chats.list(metadata={"of": "batch"})).data
    assert chat.choices[0].message.content == "".join(WORDS)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_too_large_to_be_read_is_stored_without_its_log_probabilities(
    chats, monkeypatch, world, stream
):
    token = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    telling(world, [[TextDelta("text", 0, "a"), Logprobs("logprobs", 0, [token])], [Finished("finished", 0, "stop")]])

    async def stored():
        created = await chats.create(model=MODEL, messages=HI, store=True, logprobs=True, stream=stream)
        chunks = [chunk async for chunk in created] if stream else [created]
        return (await chats.retrieve(chunks[0].id)).choices[0]

    assert (await stored()).logprobs.content[0].token == "a"
    monkeypatch.setattr("serve_app.operations.stored_chats.MAX_READ_BYTES", 10)
    found = await stored()
    assert (found.message.content, found.logprobs) == ("a", None)
