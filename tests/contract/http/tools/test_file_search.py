"""File search within responses: a scripted model, the real client, documents indexed into real LanceDB."""

import asyncio

import openai
import orjson
import pytest

from deployments.models.contract.errors import EngineDied
from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.background_calls import ended
from tests.contract.http.batch_calls import run_responses
from tests.contract.http.file_search_calls import (
    NOTES,
    calls_of,
    filled_store,
    respond,
    searches,
    store,
    stream,
    tool_of,
)
from tests.contract.http.response_calls import WEATHER, calling, messages, script
from tests.twins.engine import Script
from tests.twins.legal import fold, split
from tests.waiting import eventually

__all__ = ["store"]

RESULTS = ["file_search_call.results"]


async def test_the_model_searches_reads_and_cites(world, store):
    script(
        world, searches("moon cheese", words=("Let me look.",)), said("It is cheese", " 【1.1】", ", not rock 【9.9】.")
    )
    events = await stream(world, store, include=RESULTS)
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["message", "file_search_call", "message"]
    (call,) = calls_of(final)
    assert call["id"].startswith("fs_")
    assert (call["status"], call["queries"]) == ("completed", ["moon cheese"])
    assert call["results"][0]["filename"] == "moon.md"
    assert call["results"][0]["text"] == NOTES["moon.md"]
    kinds = [event["type"].removeprefix("response.file_search_call.") for event in events]
    assert [kind for kind in kinds if not kind.startswith("response.")] == ["in_progress", "searching", "completed"]
    told = messages(world)[2]["content"]
    assert told.startswith(f"【1.1】 moon.md\n{NOTES['moon.md']}\n\n【1.2】")
    part = final["output"][-1]["content"][0]
    (citation,) = part["annotations"]
    assert citation == {
        "type": "file_citation",
        "index": part["text"].index("【1.1】"),
        "file_id": call["results"][0]["file_id"],
        "filename": "moon.md",
    }
    assert final["usage"]["input_tokens"] == 2 * USAGE.prompt_tokens + 3
    async with world.http() as http:
        assert split((await http.get(f"/v1/responses/{final['id']}?stream=true")).content) == events


async def test_results_are_shown_to_those_who_include_them_and_options_are_honoured(world, store):
    script(world, searches("whales"), said("They sing."), searches("whales"), said("They sing."))
    (call,) = calls_of(await respond(world, store))
    assert call["results"] is None
    tool = tool_of(store, max_num_results=1, ranking_options={"score_threshold": 0.5})
    final = await respond(world, store, tools=[tool], include=RESULTS)
    assert [one["filename"] for one in calls_of(final)[0]["results"]] == ["sea.md"]
    assert final["tools"] == [tool]
    nothing = tool_of(store, filters={"type": "eq", "key": "a", "value": "b"})
    script(world, searches("whales"), said("Nothing."))
    await respond(world, store, tools=[nothing])
    assert "Nothing was found" in messages(world)[2]["content"]


async def test_the_client_reads_the_stream(world, store):
    script(world, searches("moon"), said("Cheese 【1.1】."))
    async with world.client().responses.stream(
        model=MODEL, input="x", tools=[tool_of(store)], include=RESULTS
    ) as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()
    assert "response.file_search_call.searching" in kinds
    assert "response.output_text.annotation.added" in kinds
    assert final.output[0].results[0].filename == "moon.md"
    assert final.output[-1].content[0].annotations[0].filename == "moon.md"


async def test_markers_of_an_earlier_response_are_not_taken_for_those_of_this_one(world, store):
    script(world, searches("moon"), said("Cheese 【1.1】."), searches("whales"), said("Sing 【2.1】, cheese 【1.1】."))
    first = await respond(world, store)
    second = await respond(world, store, previous_response_id=first["id"])
    assert "【2.1】 sea.md" in messages(world)[-1]["content"]
    (citation,) = second["output"][-1]["content"][0]["annotations"]
    assert citation["filename"] == "sea.md"
    assert any("【1.1】 moon.md" in (one["content"] or "") for one in messages(world) if one["role"] == "tool")


async def test_a_client_that_keeps_the_conversation_sends_the_call_back(world, store):
    for include, kept in ((RESULTS, NOTES["moon.md"]), ([], "not kept")):
        world.chat.streams.clear()
        script(world, searches("moon"), said("Cheese."), said("As I said."))
        first = await respond(world, store, store=False, include=include)
        items = [{"role": "user", "content": "x"}, *first["output"]]
        await respond(world, store, store=False, input=items)
        told = messages(world)
        assert orjson.loads(told[1]["tool_calls"][0]["function"]["arguments"]) == {"queries": ["moon"]}
        assert kept in told[2]["content"]


async def test_a_call_without_a_query_is_told_so_and_one_query_will_do(world, store):
    script(
        world,
        calling(("call_0", "file_search", "moon")),
        calling(("call_1", "file_search", '{"query":"moon"}')),
        said("Cheese."),
    )
    failed, done = calls_of(await respond(world, store))
    assert (failed["status"], done["status"], done["queries"]) == ("failed", "completed", ["moon"])
    assert "without a query" in messages(world, 1)[2]["content"]


async def test_a_model_that_is_away_fails_the_call_only(world, store):
    world.embeddings.script = lambda request: Script([EngineDied("gone")], usage=None)
    script(world, searches("moon"), said("I do not know."))
    final = await respond(world, store)
    assert (calls_of(final)[0]["status"], final["status"]) == ("failed", "completed")


async def test_stores_that_are_not_there_or_have_expired_are_refused(world, store):
    client = world.client()
    old = await client.vector_stores.create(expires_after={"anchor": "last_active_at", "days": 1})
    world.clock.advance(86_400)
    for store_id, code in (("vs_nothing", None), (old.id, "vector_store_expired")):
        tool = {"type": "file_search", "vector_store_ids": [store.id, store_id]}
        with pytest.raises(openai.APIStatusError) as caught:
            await client.responses.create(model=MODEL, input="x", tools=[tool])
        assert (caught.value.param, caught.value.code) == ("tools[0].vector_store_ids[1]", code)
    assert all(stream.is_aborted for stream in world.chat.streams)


async def test_a_key_needs_the_scope(world, store):
    world.principal(operations=frozenset({"responses"}))
    with pytest.raises(openai.PermissionDeniedError, match="file_search"):
        await world.client().responses.create(model=MODEL, input="x", tools=[tool_of(store)])


@pytest.mark.parametrize(("passage", "tokens_per_letter"), [("луна " * 60, 2 / 3), ("moon " * 170, 1 / 4)])
async def test_results_take_half_of_the_models_context_and_no_more(
    world, vector_stores, indexer, passage, tokens_per_letter
):
    store = await filled_store(world, indexer, {f"{number}.txt": passage for number in range(20)})
    script(world, searches(passage.split()[0]), said("Cheese."))
    await respond(world, store)
    told, more = messages(world)[2]["content"].split("\n\n[")
    assert more == "There are more results, which do not fit.]"
    assert told.count("【") > 1
    half = 4096 // 2
    assert half - 250 < len(told) * tokens_per_letter <= half


async def test_in_the_background_and_forced_and_beside_a_function(world, store):
    script(world, searches("moon"), said("Cheese."))
    responses = world.client().responses
    tools = [WEATHER, tool_of(store)]
    begun = await responses.create(
        model=MODEL, input="x", background=True, tools=tools, tool_choice={"type": "file_search"}, max_tool_calls=1
    )
    done = await ended(responses, begun.id)
    assert [item.type for item in done.output] == ["file_search_call", "message"]
    forced = orjson.loads(world.chat.requests[0].body)["tool_choice"]
    assert forced["function"]["name"] == "file_search"


async def test_in_lines_of_a_batch(world, store, batching):
    def play(request):
        has_run = any(message["role"] == "tool" for message in orjson.loads(request.body)["messages"])
        return Script(pieces(request, said("Cheese 【1.1】.") if has_run else searches("moon")), USAGE)

    world.chat.script = play
    for line in (await run_responses(world, 3, tools=[tool_of(store)])).splitlines():
        told = orjson.loads(line)["response"]["body"]
        assert told["output"][-1]["content"][0]["annotations"][0]["filename"] == "moon.md"


async def test_a_strict_key_searches_what_is_there_and_leaves_nothing(world, store):
    script(world, searches("moon"), said("Cheese 【1.1】."))
    world.principal(retention="strict")
    before = world.stored.count()
    final = await respond(world, store)
    assert calls_of(final)[0]["status"] == "completed"
    assert final["store"] is False
    assert world.stored.count() == before


async def test_cancelling_a_response_stops_its_search(world, store):
    script(world, searches("moon"), said("Cheese."))
    world.embeddings.script = lambda request: Script([asyncio.Event()])
    responses, before = world.client().responses, len(world.embeddings.streams)
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[tool_of(store)])
    await eventually(lambda: len(world.embeddings.streams) > before)
    searching = world.embeddings.streams[-1]
    await responses.cancel(begun.id)
    await eventually(lambda: searching.is_aborted)
    await eventually(lambda: world.stored.status(begun.id) == "cancelled")
    assert len(world.chat.requests) == 1
