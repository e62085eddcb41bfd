"""Responses in the background: followed from anywhere, cancelled, taken over when their runner is gone."""

import asyncio
from dataclasses import replace

import openai
import orjson
import pytest

from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied, Overloaded, RequestRejected
from deployments.models.contract.events import Finished, TextDelta
from serve_app.operations.responses.background.runner import ROUTE
from serve_app.operations.responses.background.running import INTERRUPTED
from serve_app.operations.responses.journal import RetryPolicy
from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.contract.http.background_calls import behind_a_front, ended, events_of, held, kill, taken_over
from tests.contract.http.conftest import serve
from tests.twins.engine import MemoryDirectory, Script, written_of
from tests.twins.legal import fold, split
from tests.waiting import eventually

ASK = {"model": MODEL, "input": "Go on.", "background": True}


async def test_it_is_queued_runs_and_can_be_retrieved(world):
    responses = world.client().responses
    release, world.chat.script = held("One ", "two.")
    begun = await responses.create(**ASK)
    assert (begun.status, begun.background, begun.output, begun.usage) == ("queued", True, [], None)
    await eventually(lambda: world.chat.streams and world.chat.streams[0].num_pieces == 1)
    assert (await responses.retrieve(begun.id)).output == []
    release.set()
    response = await ended(responses, begun.id)
    assert response.output_text == "One two."
    assert response.usage.total_tokens == USAGE.total_tokens
    events = await events_of(world, begun.id)
    assert fold(events)["id"] == begun.id
    assert [event["type"] for event in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    await eventually(lambda: recorded(world))
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens


def recorded(world):
    """Return the records of responses that were asked for."""
    return [record for record in world.log.records if record.route in ("/v1/responses", ROUTE)]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_it_is_recorded_once_when_it_ends_with_what_it_took(world, is_stream):
    release, world.chat.script = held("One ", "two.")
    async with world.http() as http:
        asking = asyncio.create_task(http.post("/v1/responses", json={**ASK, "stream": is_stream}))
        await eventually(lambda: world.chat.streams and world.chat.streams[0].num_pieces == 1)
        assert not recorded(world)
        assert "manta_requests_in_flight 1.0" in world.metrics.render().decode()
        release.set()
        answer = await asking
    await eventually(lambda: recorded(world))
    (record,) = recorded(world)
    assert record.request_id == answer.headers["x-request-id"]
    assert (record.route, record.model, record.status) == (ROUTE, MODEL, 200)
    assert (record.stream, record.ttft_s is not None) == (is_stream, True)
    assert record.completion_tokens == USAGE.completion_tokens
    assert "manta_requests_in_flight 0.0" in world.metrics.render().decode()


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("has_died", [False, True])
async def test_request_that_the_front_repeats_runs_once(world, has_died, is_stream):
    release, world.chat.script = held("One ", "two.")
    first, second = behind_a_front(world), behind_a_front(world)
    begun = (await first.post("/v1/responses", json=ASK)).json()
    await eventually(lambda: world.chat.streams and world.chat.streams[0].num_pieces == 1)
    if has_died:
        await kill(world, world.runners[0])
    repeating = asyncio.create_task(second.post("/v1/responses", json={**ASK, "stream": is_stream}))
    await asyncio.sleep(0.05)
    assert len(world.chat.streams) == 1
    if has_died:
        world.runners[1].watch()
    release.set()
    answer = await repeating
    repeated = fold(split(answer.content)) if is_stream else answer.json()
    assert (answer.status_code, repeated["id"]) == (200, begun["id"])
    assert (await ended(world.client().responses, begun["id"])).output_text == "One two."
    assert len(await world.stored.turns()) == 1
    await eventually(lambda: any(record.status == 200 for record in recorded(world)))
    assert sum(record.completion_tokens for record in recorded(world)) == USAGE.completion_tokens
    assert [used for _, _, used in world.gatekeeper.settled if used] == [USAGE.total_tokens]


async def test_one_that_never_began_is_recorded_with_its_answer(world, monkeypatch):
    async def start(*args, **kwargs):
        raise OSError("The disk is full.")

    monkeypatch.setattr("deployments.state.responses.background.BackgroundStore.start", start)
    async with world.http() as http:
        assert (await http.post("/v1/responses", json=ASK)).status_code == 500
    assert [(record.route, record.status) for record in recorded(world)] == [("/v1/responses", 500)]


async def test_it_is_followed_live_from_another_replica(world):
    release, world.chat.script = held("One ", "two ", "three.")
    begun = await world.client().responses.create(**ASK)
    seen = []
    async with serve(world.app()) as address:  # An application of its own over the same state.
        client = openai.AsyncOpenAI(api_key=SECRET, base_url=address + "/v1", max_retries=0)
        async for event in await client.responses.retrieve(begun.id, stream=True):
            seen.append(event)
            if event.type == "response.output_text.delta" and event.delta == "two ":
                assert not release.is_set()
                release.set()
        await client.close()
    other = world.client().responses
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[-1].type == "response.completed"
    rest = await other.retrieve(begun.id, stream=True, starting_after=6)
    assert [event.sequence_number async for event in rest] == list(range(7, len(seen)))


async def test_it_survives_its_client(world):
    release, world.chat.script = held("One ", "two.")
    async with serve(world.app()) as address:
        client = openai.AsyncOpenAI(api_key=SECRET, base_url=address + "/v1", max_retries=0)
        async with await client.responses.create(**ASK, stream=True) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    break
        await client.close()
        response_id = next(iter(await world.stored.turns()))
        release.set()
        assert (await ended(world.client().responses, response_id)).output_text == "One two."
    assert not world.chat.streams[0].is_aborted
    fold(await events_of(world, response_id))


async def test_cancel_stops_the_generation_from_any_replica_and_says_what_was_used(world):
    used = Usage(prompt_tokens=9, completion_tokens=1)
    _, script = held("One ", "two.")
    world.chat.script = lambda request: replace(script(request), usage_when_aborted=used)
    begun = await world.client().responses.create(**ASK)
    await eventually(lambda: world.chat.streams and world.chat.streams[0].num_pieces == 1)
    other = world.client().responses
    cancelled = await other.cancel(begun.id)
    assert cancelled.status == "cancelled"
    assert cancelled.output[0].content[0].text == "One "
    assert (cancelled.usage.input_tokens, cancelled.usage.output_tokens) == (9, 1)
    assert world.chat.streams[0].is_aborted
    assert (await other.cancel(begun.id)).status == "cancelled"
    assert fold(await events_of(world, begun.id))["status"] == "cancelled"
    await eventually(lambda: recorded(world))
    (record,) = recorded(world)
    assert (record.status, record.code, record.prompt_tokens, record.completion_tokens) == (499, "cancelled", 9, 1)


async def test_cancel_of_a_finished_response_is_refused(world):
    responses = world.client().responses
    begun = await responses.create(**ASK)
    await ended(responses, begun.id)
    with pytest.raises(openai.BadRequestError, match="status 'completed'"):
        await responses.cancel(begun.id)


async def test_delete_stops_it_and_leaves_nothing(world):
    _, world.chat.script = held("One ", "two.")
    responses = world.client().responses
    begun = await responses.create(**ASK)
    await eventually(lambda: world.chat.streams and world.chat.streams[0].num_pieces == 1)
    await responses.delete(begun.id)
    await eventually(lambda: world.chat.streams[0].is_aborted)
    assert world.stored.count() == 0
    assert world.stored.count("response_events") == 0


async def test_starting_after_past_the_end_is_refused_also_while_it_runs(world):
    release, world.chat.script = held("One ", "two.")
    responses = world.client().responses
    begun = await responses.create(**ASK)
    async with world.http() as http:
        assert (await http.get(f"/v1/responses/{begun.id}?stream=true&starting_after=99")).status_code == 400
        release.set()
        await ended(responses, begun.id)
        last = len(await events_of(world, begun.id)) - 1
        assert (await http.get(f"/v1/responses/{begun.id}?stream=true&starting_after={last + 1}")).status_code == 400
        none = await http.get(f"/v1/responses/{begun.id}?stream=true&starting_after={last}")
    assert none.content == b"data: [DONE]\n\n"


async def test_an_unfinished_response_cannot_be_continued_yet(world):
    release, world.chat.script = held("One ", "two.")
    responses = world.client().responses
    begun = await responses.create(**ASK)
    with pytest.raises(openai.BadRequestError, match="still in progress") as caught:
        await responses.create(model=MODEL, input="x", previous_response_id=begun.id)
    assert caught.value.param == "previous_response_id"
    release.set()
    await ended(responses, begun.id)
    await responses.create(model=MODEL, input="x", previous_response_id=begun.id)


async def test_a_full_engine_is_asked_again(world):
    busy = [Overloaded("full"), EngineDied("gone")]

    def script(request):
        return Script([busy.pop(0)]) if busy else Script(pieces(request, said("Now.")), USAGE)

    world.chat.script = script
    responses = world.client().responses
    begun = await responses.create(**ASK)
    assert (await ended(responses, begun.id)).output_text == "Now."
    fold(await events_of(world, begun.id))


async def test_a_refusal_of_the_engine_fails_it(world):
    world.chat.script = lambda request: Script([RequestRejected("Too long.", "messages", "context_length_exceeded")])
    responses = world.client().responses
    begun = await responses.create(**ASK)
    failed = await ended(responses, begun.id)
    assert (failed.status, failed.error.code, failed.error.message) == ("failed", "invalid_prompt", "Too long.")
    await eventually(lambda: recorded(world))
    assert [(record.status, record.code) for record in recorded(world)] == [(400, "invalid_prompt")]
    fold(await events_of(world, begun.id))


async def test_it_goes_on_where_it_was_on_another_replica(world):
    _, world.chat.script = held("One ", "two ", "three.")
    begun = await world.client().responses.create(**ASK, max_output_tokens=100)
    await eventually(lambda: world.stored.num_events(begun.id) > 6)
    follower = world.runners[-1].follow("acct_1", begun.id, -1)
    seen = [await anext(follower) for _ in range(7)]
    await follower.aclose()
    first = world.chat.requests[-1]
    await kill(world, world.runners[-1])
    busy = [Overloaded("full")]

    def go_on(request):
        return Script([busy.pop()]) if busy else Script(pieces(request, said("One ", "two ", "and three.")), USAGE)

    world.chat.script = go_on
    responses = await taken_over(world)
    response = await ended(responses, begun.id)
    assert response.output_text == "One two and three."
    events = await events_of(world, begun.id)
    final = fold(events)
    assert [orjson.loads(event) for event in seen] == events[: len(seen)]
    asked = world.chat.requests[-1]
    assert (asked.body, written_of(asked)) == (first.body, [[0], [1]])
    assert final["usage"]["output_tokens"] == USAGE.completion_tokens
    assert world.gatekeeper.settled[-1][1:] == (0, USAGE.total_tokens)


async def test_an_engine_that_dies_amid_it_is_asked_for_the_rest(world):
    def script(request):
        told = pieces(request, said("One ", "two ", "three."))
        return Script(told, USAGE) if request.written else Script([*told[:2], EngineDied("gone")])

    world.chat.script = script
    responses = world.client().responses
    begun = await responses.create(**ASK)
    response = await ended(responses, begun.id)
    assert (response.output_text, response.usage.total_tokens) == ("One two three.", USAGE.total_tokens)
    assert list(map(written_of, world.chat.requests)) == [[], [[0], [1]]]
    fold(await events_of(world, begun.id))


async def test_an_engine_that_keeps_dying_fails_it(world):
    world.chat.script = lambda request: Script([*pieces(request, said("One ", "two."))[:1], EngineDied("gone")])
    responses = world.client().responses
    begun = await responses.create(**ASK)
    response = await ended(responses, begun.id)
    assert (response.status, response.error.code) == ("failed", "server_error")
    assert len(world.chat.requests) == RetryPolicy().max_tries
    fold(await events_of(world, begun.id))


@pytest.mark.parametrize("change", ["other events", "no journal"])
async def test_one_that_does_not_become_what_was_shown_fails(world, change):
    """As it would be where the service was upgraded in between to a version that makes or keeps something else."""
    _, world.chat.script = held("One ", "two.")
    begun = await world.client().responses.create(**ASK)
    await eventually(lambda: world.stored.num_events(begun.id) > 4)
    await kill(world, world.runners[-1])
    first, *rest = await world.stored.journal(begun.id)
    changed = [first.replace(b'["text"', b'["reasoning"'), *rest] if change == "other events" else []
    await world.stored.write_journal(begun.id, changed)
    response = await ended(await taken_over(world), begun.id)
    assert (response.status, response.error.message) == ("failed", INTERRUPTED)
    assert fold(await events_of(world, begun.id))["output"][0]["content"][0]["text"] == "One "


@pytest.mark.parametrize("gone", ["model", "previous"])
async def test_it_fails_where_what_it_needs_is_gone(world, gone):
    responses = world.client().responses
    first = await responses.create(model=MODEL, input="a")
    _, world.chat.script = held("One ", "two.")
    begun = await responses.create(**ASK, previous_response_id=first.id)
    await eventually(lambda: world.stored.num_events(begun.id) > 3)
    for runner in list(world.runners):
        await kill(world, runner)
    if gone == "model":
        world.directory = MemoryDirectory([world.embeddings])
    else:
        await responses.delete(first.id)
    failed = await ended(await taken_over(world), begun.id)
    assert failed.status == "failed"
    assert failed.error.code == "server_error"
    (shown,) = fold(await events_of(world, begun.id))["output"]
    assert (shown["status"], shown["content"][0]["text"]) == ("incomplete", "One ")
    assert world.stored.count("response_jobs") == 0


async def test_a_stopping_replica_hands_its_responses_over_at_once(world):
    _, world.chat.script = held("One ", "two.")
    begun = await world.client().responses.create(**ASK)
    await eventually(lambda: world.chat.streams and world.chat.streams[0].num_pieces == 1)
    await world.runners[-1].close()
    assert world.chat.streams[0].is_aborted
    world.chat.script = lambda request: Script(pieces(request, said("One ", "more.")), USAGE)
    responses = await taken_over(world)
    assert (await ended(responses, begun.id)).output_text == "One more."
    await eventually(lambda: len(world.gatekeeper.settled) > 1)
    assert [used for _, _, used in world.gatekeeper.settled] == [0, USAGE.total_tokens]


async def test_a_cancelled_response_whose_runner_died_ends_cancelled(world):
    _, world.chat.script = held("One ", "two.")
    begun = await world.client().responses.create(**ASK)
    await eventually(lambda: world.chat.streams and world.chat.streams[0].num_pieces == 1)
    await kill(world, world.runners[-1])
    assert await world.storage().background.cancel("acct_1", begun.id)
    responses = await taken_over(world)
    assert (await ended(responses, begun.id)).status == "cancelled"
    fold(await events_of(world, begun.id))


async def test_the_database_may_be_away_for_a_moment(world, monkeypatch):
    responses = world.client().responses
    runner = world.runners[-1]
    append, failures = runner._store.append, [OSError("away"), OSError("away")]

    async def fail_twice(*args, **kwargs):
        if failures:
            raise failures.pop()
        return await append(*args, **kwargs)

    release, world.chat.script = held("One ", "two.")
    monkeypatch.setattr(runner._store, "append", fail_twice)
    begun = await responses.create(**ASK)
    await eventually(lambda: not failures)
    release.set()
    assert (await ended(responses, begun.id)).output_text == "One two."
    fold(await events_of(world, begun.id))


@pytest.mark.parametrize("is_back", ["once another has ended it", "never"])
async def test_runner_that_was_cut_off_counts_nothing_of_what_another_counts(world, is_back):
    release, world.chat.script = held("One ", "two ", "three.")
    begun = await world.client().responses.create(**ASK)
    await eventually(lambda: world.stored.num_events(begun.id) > 4)
    (runner,) = world.runners
    (running,) = runner._running.values()
    stored, running.store = running.store, CutOff()
    world.clock.advance(world.timing.lease_s)
    world.chat.script = lambda request: Script(pieces(request, said("One ", "two ", "three.")), USAGE)
    assert (await ended(await taken_over(world), begun.id)).output_text == "One two three."
    if is_back != "never":
        running.store = stored
    release.set()
    await eventually(lambda: len(recorded(world)) == 2)
    assert sorted(record.completion_tokens for record in recorded(world)) == [0, USAGE.completion_tokens]
    assert sum(used for _, _, used in world.gatekeeper.settled) == USAGE.total_tokens
    assert {record.code for record in recorded(world) if record.status != 200} <= {"lease_lost", None}


class CutOff:
    """A database that does not answer."""

    def __getattr__(self, name):
        raise OSError("away")


async def test_its_items_join_the_conversation(world):
    client = world.client()
    talk = await client.conversations.create()
    begun = await client.responses.create(**ASK, conversation=talk.id)
    await ended(client.responses, begun.id)
    items = [item async for item in client.conversations.items.list(talk.id, order="asc")]
    assert [item.role for item in items] == ["user", "assistant"]


async def test_many_at_once_end_each_as_its_own(world):
    def script(request):
        word = orjson.loads(request.body)["messages"][0]["content"]
        events = [[TextDelta("text", 0, word)], [Finished("finished", 0, "stop")]]
        return Script(pieces(request, events), USAGE)

    world.chat.script = script
    responses = world.client().responses
    begun = [await responses.create(model=MODEL, input=str(n), background=True) for n in range(30)]
    done = await asyncio.gather(*(ended(responses, one.id) for one in begun))
    assert [one.output_text for one in done] == [str(n) for n in range(30)]
    await eventually(lambda: not world.runners[-1]._running)
