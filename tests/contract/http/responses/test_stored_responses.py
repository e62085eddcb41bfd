"""Responses and conversations that are kept: found again, continued, compacted, and gone when they should be."""

import asyncio

import openai
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import OTHER, messages, script, stream_of
from tests.twins.legal import split


async def test_what_is_stored_can_be_retrieved_listed_and_deleted(world, responses):
    created = await responses.create(model=MODEL, input=[{"role": "user", "content": t} for t in "abc"])
    assert (await responses.retrieve(created.id)).model_dump() == created.model_dump()
    items = [item async for item in responses.input_items.list(created.id, limit=2, order="asc")]
    assert [item.content[0].text for item in items] == ["a", "b", "c"]
    assert all(item.id.startswith("msg_") for item in items)
    page = await responses.input_items.list(created.id, limit=2)
    assert [item.content[0].text for item in page.data] == ["c", "b"]
    assert page.has_more
    await responses.delete(created.id)
    for call in (responses.retrieve, responses.delete, responses.cancel, responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as caught:
            await call(created.id)
        assert caught.value.body["message"] == f"Response with id '{created.id}' not found."


async def test_a_stored_stream_is_replayed_from_any_number(world):
    events = await stream_of(world, {"input": "Say hello."})
    response_id = events[0]["response"]["id"]
    async with world.http() as http:
        again = await http.get(f"/v1/responses/{response_id}?stream=true")
        assert split(again.content) == events
        rest = await http.get(f"/v1/responses/{response_id}?stream=true&starting_after=4")
        assert split(rest.content) == events[5:]
        last = len(events) - 1
        none = await http.get(f"/v1/responses/{response_id}?stream=true&starting_after={last}")
        assert none.content == b"data: [DONE]\n\n"
        past = await http.get(f"/v1/responses/{response_id}?stream=true&starting_after={last + 1}")
    assert past.status_code == 400
    assert past.json()["error"] == {
        "message": f"Invalid 'starting_after': there is no event with the sequence number {last + 1}. The last one is "
        f"{last}.",
        "type": "invalid_request_error",
        "param": "starting_after",
        "code": "invalid_value",
    }


async def test_store_false_leaves_no_trace(world, responses):
    response = await responses.create(model=MODEL, input="x", store=False)
    assert response.store is False
    assert world.stored.count() == 0
    with pytest.raises(openai.BadRequestError) as caught:
        await responses.create(model=MODEL, input="y", previous_response_id=response.id)
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        item = {"type": "item_reference", "id": response.output[0].id}
        await responses.create(model=MODEL, input=[item])


@pytest.mark.parametrize("kind", [{}, {"type": None}])
async def test_a_reference_may_leave_its_type_out(responses, kind):
    first = await responses.create(model=MODEL, input="x")
    again = await responses.create(model=MODEL, input=[{"id": first.output[0].id, **kind}])
    (item,) = (await responses.input_items.list(again.id)).data
    assert (item.type, item.content[0].text) == ("message", first.output_text)
    with pytest.raises(openai.BadRequestError) as caught:
        await responses.create(model=MODEL, input=[{"id": first.output[0].id, "content": "x", **kind}])
    assert caught.value.param == "input[0].type"


async def test_foreign_unknown_and_expired_ids_answer_alike(world, responses):
    world.principal(OTHER, key_id="key_2", account="acct_2")
    other = world.client(OTHER)
    made = await other.responses.create(model=MODEL, input="x")
    talk = await other.conversations.create()
    expired = await responses.create(model=MODEL, input="x")
    world.clock.advance(86_400)
    for response_id in ("resp_none", made.id, expired.id, "\x00", "x" * 500):
        for body in ({"input": "y"}, {"input": "y", "stream": True}):
            with pytest.raises(openai.BadRequestError) as caught:
                await responses.create(model=MODEL, previous_response_id=response_id[:128], **body)
            assert caught.value.code == "previous_response_not_found"
    for conversation_id in ("conv_none", talk.id):
        with pytest.raises(openai.NotFoundError):
            await responses.create(model=MODEL, input="y", conversation=conversation_id)
        with pytest.raises(openai.NotFoundError):
            await world.client().conversations.retrieve(conversation_id)
    with pytest.raises(openai.NotFoundError):
        await responses.create(model=MODEL, input=[{"type": "item_reference", "id": made.output[0].id}])


@pytest.fixture
def little(monkeypatch):
    """A prompt may read five thousand bytes of what is stored."""
    for module in ("deployments.state.responses.queries", "serve_app.operations.responses.prompt.reading"):
        monkeypatch.setattr(f"{module}.MAX_READ_BYTES", 5000)


async def test_what_a_request_refers_to_is_bounded_however_it_refers_to_it(world, responses, little):
    client, said = world.client(), {"role": "user", "content": "word " * 400}
    item = (await client.conversations.items.create((await client.conversations.create()).id, items=[said])).data[0]
    talk = await client.conversations.create(items=[said] * 8)
    first = await responses.create(model=MODEL, input=[said, said])
    second = await responses.create(model=MODEL, input=[said, said], previous_response_id=first.id)
    once = {"type": "item_reference", "id": item.id}
    await responses.create(model=MODEL, input=[once, once])
    too_much = [
        ({"input": [once] * 400}, "input"),
        ({"input": "x", "conversation": talk.id}, "conversation"),
        ({"input": "x", "previous_response_id": second.id}, "previous_response_id"),
    ]
    for body, param in too_much:
        for ask in (responses.create, responses.input_tokens.count):
            with pytest.raises(openai.BadRequestError) as caught:
                await ask(model=MODEL, **body)
            assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)


async def test_strict_retention_stores_nothing_and_says_so(world, responses):
    world.principal(retention="strict")
    response = await responses.create(model=MODEL, input="x", store=True)
    assert response.store is False
    assert world.stored.count() == 0
    for wanted in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"background": True}):
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await responses.create(model=MODEL, input="x", **wanted)
        assert caught.value.code == "retention_policy"
        assert caught.value.param == next(iter(wanted))
    with pytest.raises(openai.PermissionDeniedError):
        await world.client().conversations.create()
    with pytest.raises(openai.PermissionDeniedError):
        await world.client().conversations.items.create("conv_1", items=[{"role": "user", "content": "x"}])


@pytest.mark.parametrize(("retention", "days"), [("ephemeral", 1), ("stored", 30)])
async def test_retention_says_how_long(world, responses, retention, days):
    world.principal(retention=retention)
    response = await responses.create(model=MODEL, input="x")
    world.clock.advance(days * 86_400 - 1)
    await responses.retrieve(response.id)
    world.clock.advance(1)
    with pytest.raises(openai.NotFoundError):
        await responses.retrieve(response.id)


async def test_items_are_referred_to_by_their_ids(world, responses):
    script(world, said("The answer."), said("Again."))
    first = await responses.create(model=MODEL, input="x")
    await responses.create(
        model=MODEL, input=[{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "y"}]
    )
    assert [m["content"] for m in messages(world)] == ["The answer.", "y"]


async def test_a_compacted_conversation_goes_on(world, responses):
    script(world, said("Blue."), said("They like blue."), said("Yes."))
    first = await responses.create(model=MODEL, input="I like blue.")
    compacted = await responses.compact(model=MODEL, previous_response_id=first.id)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    given = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output]
    last = await responses.create(model=MODEL, input=[*given, {"role": "user", "content": "Which?"}])
    assert messages(world)[1] == {"role": "system", "content": "What was said before, in short:\nThey like blue."}
    await responses.create(model=MODEL, input="And?", previous_response_id=last.id)
    assert "They like blue." in messages(world)[1]["content"]
    items = [item.model_dump() async for item in responses.input_items.list(last.id)]
    assert "They like blue." not in str(items)


async def test_conversations_gather_what_is_said(world, responses):
    script(world, said("One."), said("Two."))
    client = world.client()
    talk = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "zero"}], metadata={"topic": "t"}
    )
    assert talk.metadata == {"topic": "t"}
    first = await responses.create(model=MODEL, input="a", conversation=talk.id)
    assert first.conversation.id == talk.id
    await responses.create(model=MODEL, input="b", conversation={"id": talk.id})
    assert [m["content"] for m in messages(world)] == ["zero", "a", "One.", "b"]
    items = [item async for item in client.conversations.items.list(talk.id, order="asc", limit=2)]
    assert [item.content[0].text for item in items] == ["zero", "a", "One.", "b", "Two."]
    added = await client.conversations.items.create(talk.id, items=[{"role": "user", "content": "c"}])
    item_id = added.data[0].id
    assert (await client.conversations.items.retrieve(item_id, conversation_id=talk.id)).content[0].text == "c"
    assert (await client.conversations.items.delete(item_id, conversation_id=talk.id)).id == talk.id
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve(item_id, conversation_id=talk.id)
    assert (await client.conversations.update(talk.id, metadata={"x": "y"})).metadata == {"x": "y"}
    assert (await client.conversations.delete(talk.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(talk.id)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=none"])
async def test_pages_are_asked_for_within_bounds(world, query):
    response = await world.client().responses.create(model=MODEL, input="x")
    talk = await world.client().conversations.create()
    async with world.http() as http:
        for path in (f"/v1/responses/{response.id}/input_items", f"/v1/conversations/{talk.id}/items"):
            answer = await http.get(f"{path}?{query}")
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == query.partition("=")[0]


@pytest.mark.parametrize(
    "query", ["stream=true&starting_after=-5", "stream=true&starting_after=x", "stream=maybe", "starting_after=1"]
)
async def test_streams_are_asked_for_in_whole_numbers(world, query):
    response = await world.client().responses.create(model=MODEL, input="x")
    async with world.http() as http:
        assert (await http.get(f"/v1/responses/{response.id}?{query}")).status_code == 400


async def test_only_background_responses_can_be_cancelled(world, responses):
    response = await responses.create(model=MODEL, input="x")
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        await responses.cancel(response.id)


async def test_many_turns_at_once_do_not_mix(world, responses):
    async def talk(name):
        first = await responses.create(model=MODEL, input=name)
        second = await responses.create(model=MODEL, input=name + "2", previous_response_id=first.id)
        return [item.content[0].text async for item in responses.input_items.list(second.id)]

    assert await asyncio.gather(*(talk(str(n)) for n in range(20))) == [[f"{n}2"] for n in range(20)]
