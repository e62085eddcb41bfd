"""Responses that are asked for again, by the front or in a batch: stored once, answered as stored."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from deployments.models.contract.engine import Usage
from tests.contract.http.answers import MODEL, USAGE, said
from tests.contract.http.background_calls import behind_a_front, held
from tests.contract.http.conftest import World, world_over
from tests.contract.http.forks import Forks, forks_of
from tests.contract.http.response_calls import lines_of, script
from tests.contract.http.stored import open_responses
from tests.twins.gatekeeper import TestClock
from tests.twins.legal import fold, split
from tests.waiting import eventually

REPLICA = "tests.contract.http.killed_replica"
ASK = {"model": MODEL, "input": "Go on."}
MORE = Usage(prompt_tokens=20, completion_tokens=7)


@pytest.fixture
async def world(database_url) -> AsyncIterator[World]:
    """A service on each kind of database."""
    async with open_responses(database_url, Path(), clock := TestClock()) as stored:
        yield world_over(clock, stored)


@pytest.fixture(scope="module")
def forks(tmp_path_factory) -> Iterator[Forks]:
    """Runs what a replica runs."""
    with forks_of(tmp_path_factory.mktemp("forks"), REPLICA) as forks:
        yield forks


async def talk_of(world: World, has_conversation: bool) -> dict[str, Any]:
    """Return what a request says of its conversation, which is new."""
    if not has_conversation:
        return {}
    made = await world.client().conversations.create(items=[{"role": "user", "content": "Begin."}])
    return {"conversation": made.id}


async def texts_of(world: World, talk: dict[str, Any]) -> list[str]:
    """Return what was said in a conversation, the oldest first."""
    items = await world.client().conversations.items.list(talk["conversation"], order="asc")
    return [item.content[0].text for item in items.data]  # type: ignore[union-attr]


def records_of(world: World) -> list[Any]:
    return [record for record in world.log.records if record.route == "/v1/responses"]


@pytest.mark.parametrize(
    ("is_stream", "has_conversation"), [(False, False), (True, False), (False, True), (True, True)]
)
async def test_one_that_was_stored_before_its_replica_was_killed_is_answered_by_the_next(
    world, database_url, forks, is_stream, has_conversation
):
    talk = await talk_of(world, has_conversation)
    body = {**ASK, "stream": is_stream, **talk}
    killed = await forks.run(f"import {REPLICA} as replica; replica.answer({database_url!r}, {orjson.dumps(body)!r})")
    assert killed.status == -signal.SIGKILL, killed.errors
    (stored,) = (await world.stored.turns()).values()

    answer = await behind_a_front(world).post("/v1/responses", json=body)
    told = fold(split(answer.content)) if is_stream else answer.json()
    assert (answer.status_code, told) == (200, stored.response)
    assert told["output"][0]["content"][0]["text"] == "The first try."
    assert world.chat.requests == []
    assert len(await world.stored.turns()) == 1
    if talk:
        assert await texts_of(world, talk) == ["Begin.", "Go on.", "The first try."]
    (record,) = records_of(world)
    assert (record.model, record.status, record.stream) == (MODEL, 200, is_stream)
    assert (record.prompt_tokens, record.completion_tokens) == (USAGE.prompt_tokens, USAGE.completion_tokens)
    assert record.cached_tokens == USAGE.cached_tokens


@pytest.mark.parametrize("has_conversation", [False, True])
async def test_of_two_whole_answers_the_one_stored_first_is_given_to_both(world, has_conversation):
    talk = await talk_of(world, has_conversation)
    release, world.chat.script = held("The first ", "try.")
    first = asyncio.create_task(behind_a_front(world).post("/v1/responses", json={**ASK, **talk}))
    await eventually(lambda: world.chat.streams)
    second = asyncio.create_task(_second_try(world, {**ASK, **talk}))
    await asyncio.wait([second])
    release.set()
    answers = [(await one).json() for one in (first, second)]
    assert answers[0] == answers[1]
    assert answers[0]["output"][0]["content"][0]["text"] == "The second try."
    assert len(await world.stored.turns()) == 1
    if talk:
        assert await texts_of(world, talk) == ["Begin.", "Go on.", "The second try."]
    assert [record.completion_tokens for record in records_of(world)] == [MORE.completion_tokens] * 2


async def _second_try(world: World, body: dict[str, Any]) -> Any:
    script(world, said("The second ", "try."), usage=MORE)
    return await behind_a_front(world).post("/v1/responses", json=body)


@pytest.mark.parametrize("is_first_faster", [False, True])
async def test_of_two_streams_the_later_one_is_stored(world, is_first_faster):
    talk = await talk_of(world, True)
    body = {**ASK, "stream": True, **talk}
    releases = []
    for words in (("The first ", "try."), ("The second ", "try.")):
        release, world.chat.script = held(*words)
        asked = asyncio.create_task(behind_a_front(world).post("/v1/responses", json=body))
        releases.append((release, asked))
        await eventually(lambda: len(world.chat.streams) == len(releases))
        world.clock.advance(4)
    for release, asked in releases if is_first_faster else reversed(releases):
        release.set()
        await asked
    (_, first), (_, second) = releases
    read = fold(split((await second).content))
    assert read["output"][0]["content"][0]["text"] == "The second try."
    assert fold(split((await first).content))["status"] == "completed"
    assert (await world.client().responses.retrieve(read["id"])).model_dump(exclude_unset=True) == read
    assert await texts_of(world, talk) == ["Begin.", "Go on.", "The second try."]
    found = await world.storage().responses.find_items("acct_1", [item["id"] for item in read["output"]])
    assert [*found.values()] == read["output"]
    continued = await world.client().responses.create(model=MODEL, input="And?", previous_response_id=read["id"])
    assert continued.status == "completed"
    said_before = [message["content"] for message in orjson.loads(world.chat.requests[-1].body)["messages"]]
    assert said_before == ["Go on.", "The second try.", "And?"]


async def test_a_line_of_a_batch_that_runs_again_is_answered_with_what_was_stored(world):
    talk = await talk_of(world, True)
    script(world, said("The first ", "try."))
    body = {**ASK, **talk}
    first, other = await lines_of(world, body, body, batch_id="batch_1")
    assert first[1]["id"] != other[1]["id"]
    again, _ = await lines_of(world, body, body, batch_id="batch_1")
    assert again == first
    assert len(world.chat.requests) == 2
    assert len(await texts_of(world, talk)) == 5
    ((status, told),) = await lines_of(world, body, batch_id="batch_2")
    assert (status, told["id"] == first[1]["id"]) == (200, False)


async def test_a_line_that_stores_nothing_runs_again(world):
    body = {**ASK, "store": False}
    for _ in range(2):
        await lines_of(world, body, batch_id="batch_1")
    assert len(world.chat.requests) == 2
