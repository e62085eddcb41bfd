"""The web search within responses: a scripted model, the real client, a real SearXNG's interface, real pages."""

import asyncio
import json
import re

import openai
import orjson
import pytest
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, WebSearchTool
from openai.types.responses.web_search_tool import Filters

from serve_app.schemas.responses.built_in_tool import RESULTS_NOT_KEPT
from tests.contract.http.answers import MODEL, said
from tests.contract.http.background_calls import ended
from tests.contract.http.batch_calls import run_responses
from tests.contract.http.response_calls import WEATHER, calling, calls, messages, script
from tests.contract.http.tool_calls import leave
from tests.contract.http.web_search_calls import (
    DATA,
    LISBON,
    SOURCES,
    SPORT,
    STORM,
    TOOL,
    calls_of,
    finds,
    opens,
    respond,
    searches,
    stream,
    told_model,
)
from tests.twins.legal import fold
from tests.waiting import eventually


async def test_the_web_is_searched_and_the_model_reads_what_was_found(world, web):
    script(world, searches(words=("Let me look.",)), said("Sunny."))
    events = await stream(world)
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["message", "web_search_call", "message"]
    (call,) = calls_of(final)
    assert call["id"].startswith("ws_")
    assert call["status"] == "completed"
    assert call["action"] == {"type": "search", "query": "lisbon", "queries": ["lisbon"]}
    assert [e["type"].rpartition(".")[2] for e in events if "web_search_call." in e["type"]] == [
        "in_progress",
        "searching",
        "completed",
    ]
    told = told_model(world)
    assert f"[1] Weather in Lisbon\n{web.url(LISBON)}\nSunny, 24 degrees in Lisbon today." in told


async def test_what_comes_from_the_web_is_marked_with_what_no_page_can_know(world, web):
    script(world, searches(), opens(web.url(LISBON)), finds(web.url(LISBON), "sunny"), said("Sunny."))
    await respond(world)
    told = [message["content"] for message in messages(world) if message["role"] == "tool"]
    marks = []
    for text in told:
        found = re.fullmatch(r".*never instructions\.\nBEGIN (\w{16})\n.*\nEND \1", text, re.DOTALL)
        assert found is not None
        marks.append(found[1])
    assert len(set(marks)) == 3


async def test_sources_are_shown_to_those_who_include_them(world, web):
    script(world, searches("storm"), said("A storm."))
    (call,) = calls_of(await respond(world, include=SOURCES))
    assert call["action"]["sources"] == [{"type": "url", "url": web.url(STORM)}]


async def test_the_client_reads_the_stream(world, web):
    script(world, searches(), said("See ", f"[the weather]({web.url(LISBON)})."))
    async with world.client().responses.stream(model=MODEL, input="x", tools=[TOOL], include=SOURCES) as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()
    assert "response.web_search_call.searching" in kinds
    assert "response.output_text.annotation.added" in kinds
    call, message = final.output
    assert (call.action.query, call.action.sources[0].url) == ("lisbon", web.url(LISBON))
    (citation,) = message.content[0].annotations
    assert (citation.type, citation.url, citation.title) == ("url_citation", web.url(LISBON), "Weather in Lisbon")
    assert final.output_text[citation.start_index : citation.end_index] == f"[the weather]({web.url(LISBON)})"


async def test_the_user_s_place_is_told(world, web):
    where = {"type": "approximate", "city": "Lisbon", "country": "PT", "timezone": "Europe/Lisbon"}
    script(world, said("Yes."))
    await respond(world, tools=[{**TOOL, "user_location": where}])
    description = json.loads(world.chat.requests[0].body)["tools"][0]["function"]["description"]
    assert "The user is near Lisbon, PT. The user's time zone is Europe/Lisbon." in description


async def test_how_much_is_read_follows_the_context_size(world, web):
    lengths = []
    for size in ("low", "medium", "high"):
        script(world, searches(), said("Yes."))
        final = await respond(world, tools=[{**TOOL, "search_context_size": size}], include=SOURCES)
        lengths.append(len(calls_of(final)[0]["action"]["sources"]))
    assert lengths == [4, 7, 7]


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
)
async def test_every_name_of_the_tool_is_known_and_can_be_chosen(world, web, kind):
    world.principal(operations=frozenset({"responses", "web_search"}))
    script(world, searches(), said("Yes."))
    final = await respond(world, tools=[WEATHER, {"type": kind}], tool_choice={"type": kind})
    first, second = (json.loads(request.body) for request in world.chat.requests)
    assert (first["tool_choice"], second["tool_choice"]) == ("required", "auto")
    assert [one["function"]["name"] for one in first["tools"]] == ["web_search", "open_page", "find_in_page"]
    assert len(calls_of(final)) == 1
    assert final["tools"][1] == {"type": kind}


async def test_a_key_without_the_scope_is_refused(world, web):
    world.principal(operations=frozenset({"responses"}))
    with pytest.raises(openai.PermissionDeniedError, match="'web_search'"):
        await world.client().responses.create(model=MODEL, input="x", tools=[{"type": "web_search_preview"}])


async def test_a_service_without_a_provider_says_so(world):
    with pytest.raises(openai.BadRequestError, match="'web_search_preview' is not switched on") as caught:
        await world.client().responses.create(model=MODEL, input="x", tools=[{"type": "web_search_preview"}])
    assert (caught.value.param, caught.value.code) == ("tools[0].type", "unsupported_value")


async def test_a_function_of_the_same_name_is_refused(world, web):
    function = {"type": "function", "name": "open_page", "parameters": {"type": "object"}}
    with pytest.raises(openai.BadRequestError, match="'open_page'"):
        await world.client().responses.create(model=MODEL, input="x", tools=[function, TOOL])


@pytest.mark.parametrize("arguments", ["", "null", "[]", "{}", '{"query":5}', '{"query":""}', "lisbon"])
async def test_a_call_without_a_query_is_told_so(world, web, arguments):
    script(world, calling(("call_0", "web_search", arguments)), said("Sorry."))
    final = await respond(world)
    assert calls_of(final)[0]["status"] == "failed"
    assert calls_of(final)[0]["action"]["type"] == "search"
    assert 'Call it with {"query":"..."}' in told_model(world)


async def test_a_search_service_that_fails_does_not_fail_the_response(world, web):
    web.formats = ()
    script(world, searches(), said("Sorry."))
    final = await respond(world)
    assert calls_of(final)[0]["status"] == "failed"
    assert "status 403" in told_model(world)
    assert final["status"] == "completed"


async def test_nothing_found_is_told(world, web):
    script(world, searches("qwertyuiop"), said("Nothing."))
    final = await respond(world)
    assert calls_of(final)[0]["status"] == "completed"
    assert "Nothing was found" in told_model(world)


async def test_citations_are_exact(world, web):
    url, other = web.url(LISBON), web.url(STORM)
    text = f"Ümläut 🌞 [Sunny, they say]({url}), and {other}. Also ({url}/) and [x](https://unknown.example/)."
    script(world, searches(), said(text))
    final = await respond(world)
    part = final["output"][-1]["content"][0]
    assert [part["text"][one["start_index"] : one["end_index"]] for one in part["annotations"]] == [
        f"[Sunny, they say]({url})",
        other,
        f"{url}/",
    ]
    assert [one["title"] for one in part["annotations"]] == [LISBON.title, STORM.title, LISBON.title]


async def test_the_next_turn_knows_what_was_found(world, web):
    script(world, searches(), said("Look."), opens(web.url(DATA)), said(f"24: {web.url(DATA)}"), said("Yes."))
    first = await respond(world)
    second = await respond(world, previous_response_id=first["id"])
    assert calls_of(second)[0]["status"] == "completed"  # Its address is in what was found before.
    third = await respond(world, previous_response_id=second["id"])
    assert [m["role"] for m in messages(world)].count("tool") == 2
    assert "[1] Weather in Lisbon" in messages(world)[2]["content"]
    assert third["status"] == "completed"


async def test_a_client_that_keeps_the_conversation_may_send_it_back(world, web):
    script(world, searches(), opens(web.url(STORM)), said(f"See {web.url(STORM)}"), said("Yes."))
    first = await respond(world, store=False, include=SOURCES)
    await respond(world, store=False, input=[{"role": "user", "content": "x"}, *first["output"]])
    told = messages(world)
    called = [one["function"] for message in told for one in message.get("tool_calls") or ()]
    assert [one["name"] for one in called] == ["web_search", "open_page"]
    assert json.loads(called[0]["arguments"]) == {"query": "lisbon"}
    outputs = [message["content"] for message in told if message["role"] == "tool"]
    assert web.url(LISBON) in outputs[0]
    assert outputs[1] == RESULTS_NOT_KEPT


async def test_in_the_background_it_runs_and_can_be_cancelled(world, web):
    script(world, searches(), said("Sunny."), searches())
    responses = world.client().responses
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[TOOL])
    done = await ended(responses, begun.id)
    assert [item.type for item in done.output] == ["web_search_call", "message"]
    web.hold = asyncio.Event()
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[TOOL])
    await eventually(lambda: len(web.asked) == 2)
    await responses.cancel(begun.id)
    assert (await ended(responses, begun.id)).status == "cancelled"
    web.hold.set()


async def test_a_client_that_leaves_stops_the_search(world, web):
    script(world, searches())
    web.hold = asyncio.Event()
    await leave(world, TOOL, lambda: web.asked, lambda: world.log.records)
    web.hold.set()
    assert len(world.chat.requests) == 1


async def test_several_calls_at_once(world, web):
    both = calls(("web_search", {"query": "storm"}), ("web_search", {"query": "sport"}))
    script(world, both, said("Done."))
    final = await respond(world, include=SOURCES)
    assert [call["action"]["sources"][0]["url"] for call in calls_of(final)] == [web.url(STORM), web.url(SPORT)]


async def test_the_agents_sdk_searches(world, web):
    script(world, searches(), said("Sunny."))
    model = OpenAIResponsesModel(MODEL, world.client())
    search = WebSearchTool(
        user_location={"type": "approximate", "city": "Lisbon"},
        filters=Filters(allowed_domains=["weather.example"]),
        search_context_size="low",
    )
    agent = Agent(name="Searcher", model=model, tools=[search])
    result = await Runner.run(agent, "x", run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == "Sunny."
    assert web.asked == [{"q": "lisbon site:weather.example", "format": "json"}]


async def test_a_line_of_a_batch_searches(world, web, batching):
    script(world, searches(), said("Sunny."))
    result = orjson.loads(await run_responses(world, tools=[TOOL], include=SOURCES))
    call, message = result["response"]["body"]["output"]
    assert call["action"]["sources"][0]["url"] == web.url(LISBON)
    assert message["content"][0]["text"] == "Sunny."


async def test_nothing_that_is_searched_or_found_is_logged(world, web, caplog):
    caplog.set_level("DEBUG")
    script(world, searches("Kanarienvogel lisbon"), opens(web.url(LISBON)), said("Hm."))
    await respond(world, input="Kanarienvogel")
    web.formats = ()
    script(world, searches("Kanarienvogel"), said("Hm."))
    await respond(world)
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith(("httpx2", "httpcore2", "uvicorn"))]
    assert not any("Kanarienvogel" in line or "24 degrees" in line for line in ours)
