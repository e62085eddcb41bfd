"""The web search within responses: a scripted model, the real client, a real SearXNG's interface, real pages."""

import asyncio
import dataclasses
import json
import re

import httpx2
import openai
import orjson
import pytest
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, WebSearchTool
from openai.types.responses.web_search_tool import Filters

from serve_app.operations.responses.history import RESULTS_NOT_KEPT
from tests.contract.http.answers import MODEL, SECRET, said
from tests.contract.http.conftest import serve
from tests.contract.http.test_batches import finish, jsonl, lines_of, submit
from tests.contract.http.test_responses import WEATHER, calling
from tests.contract.http.test_tool_loop import messages, script
from tests.twins.legal import fold, split
from tests.twins.web import SITES
from tests.waiting import eventually

TOOL = {"type": "web_search"}
SOURCES = ["web_search_call.action.sources"]
LISBON, OUTLOOK, STORM, SPORT, REPORT, DATA, GONE, *_ = SITES


def calls(*asked: tuple[str, dict[str, str]], words: tuple[str, ...] = ()):
    """Return the events of a model that calls these functions."""
    told = [(f"call_{n}", name, orjson.dumps(arguments).decode()) for n, (name, arguments) in enumerate(asked)]
    return calling(*told, words=words)


def searches(query: str = "lisbon", **more):
    return calls(("web_search", {"query": query}), **more)


def opens(url: str):
    return calls(("open_page", {"url": url}))


def finds(url: str, pattern: str):
    return calls(("find_in_page", {"url": url, "pattern": pattern}))


async def stream(world, **body):
    async with world.http() as http:
        body = {"model": MODEL, "input": "x", "stream": True, "tools": [TOOL], **body}
        answer = await http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return split(answer.content)


async def respond(world, **body):
    return fold(await stream(world, **body))


def calls_of(response):
    return [item for item in response["output"] if item["type"] == "web_search_call"]


def told_model(world, number=-1):
    """Return what the model was last told by the tool."""
    return [message["content"] for message in messages(world) if message["role"] == "tool"][number]


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


async def test_pages_are_opened_and_searched(world, web):
    url = web.url(LISBON)
    script(world, searches(), opens(url), finds(url, "19  DEGREES"), finds(url, "snow"), said("19 degrees."))
    final = await respond(world)
    assert [call["action"] for call in calls_of(final)[1:]] == [
        {"type": "open_page", "url": url},
        {"type": "find_in_page", "url": url, "pattern": "19  DEGREES"},
        {"type": "find_in_page", "url": url, "pattern": "snow"},
    ]
    assert {call["status"] for call in calls_of(final)} == {"completed"}
    assert "It is sunny, 24 degrees." in told_model(world, 1)
    assert "20 places" in told_model(world, 2)
    assert "does not stand in this page" in told_model(world, 3)
    assert web.visited == ["weather.example/lisbon"]  # Once for all.


async def test_a_link_on_a_page_may_be_followed(world, web):
    script(world, searches(), opens(web.url(LISBON)), opens(web.url(OUTLOOK) + "?x=1"), said("Rain."))
    final = await respond(world)
    assert [call["status"] for call in calls_of(final)] == ["completed"] * 3
    assert "Rain." in told_model(world)


@pytest.mark.parametrize("text", ["Look at {url}.", "<{url}>", "[this]({url}#part)"])
async def test_an_address_that_the_user_named_may_be_opened(world, web, text):
    script(world, opens(web.url(DATA)), said("24."))
    final = await respond(world, input=text.format(url=web.url(DATA)))
    assert calls_of(final)[0]["status"] == "completed"
    assert '{"degrees": 24}' in told_model(world)


@pytest.mark.parametrize("tail", ["/leads?to=secret", "/storm?secret", "/storm/secret", "/"])
async def test_an_address_that_nobody_named_is_not_opened(world, web, tail):
    """So a page that wants something carried away in an address gets nothing."""
    host = "secret.example" if tail == "/" else "news.example"
    script(world, searches("storm"), opens(f"http://{host}:{web.port}{tail}"), said("No."))
    final = await respond(world)
    assert [call["status"] for call in calls_of(final)] == ["completed", "failed"]
    assert "neither in a search nor in what the user said" in told_model(world)
    assert web.visited == []


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest/meta-data/", "http://[::1]/", "http://127.0.0.2/"])
async def test_a_private_address_is_not_opened_though_the_user_names_it(world, web, url):
    script(world, opens(url), said("No."))
    final = await respond(world, input=f"Open {url} please")
    assert calls_of(final)[0]["status"] == "failed"
    assert "not on the public internet" in told_model(world)


@pytest.mark.parametrize(
    ("site", "told"), [(REPORT, "'application/pdf'"), (GONE, "status 404")], ids=["no text", "not there"]
)
async def test_a_page_that_cannot_be_read_is_told_and_the_response_goes_on(world, web, site, told):
    script(world, searches(), opens(web.url(site)), said("Hm."))
    final = await respond(world)
    assert calls_of(final)[1]["status"] == "failed"
    assert told in told_model(world)
    assert final["status"] == "completed"


async def test_only_allowed_domains_are_found_and_opened(world, web):
    tool = {**TOOL, "filters": {"allowed_domains": ["News.Example"]}}
    script(world, searches(), opens(web.url(LISBON)), opens(web.url(SPORT)), said("Two to one."))
    final = await respond(world, tools=[tool], input=f"Not {web.url(LISBON)}", include=SOURCES)
    search, weather, sport = calls_of(final)
    assert [source["url"] for source in search["action"]["sources"]] == [web.url(STORM), web.url(SPORT)]
    assert (weather["status"], sport["status"]) == ("failed", "completed")
    assert "only pages of these domains may be: news.example" in told_model(world, 1)
    assert final["tools"] == [{**TOOL, "filters": {"allowed_domains": ["news.example"]}}]


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


async def test_a_small_model_is_not_flooded(world, web):
    url = web.url(LISBON)
    script(world, searches(), opens(url), said("Yes."))
    world.chat.card = dataclasses.replace(world.chat.card, max_model_len=400)
    await respond(world, tools=[{**TOOL, "search_context_size": "high"}], max_output_tokens=10)
    assert "Sunny, 24 degrees in Lisbon" not in told_model(world, 0)
    assert "Sunny, 24 degrees in" in told_model(world, 0)
    assert "more characters. Find what you need in them with find_in_page" in told_model(world, 1)


async def test_without_access_to_the_web_pages_are_not_opened(world, web):
    tool = {**TOOL, "external_web_access": False}
    script(world, searches(), said("Yes."))
    final = await respond(world, tools=[tool])
    offered = json.loads(world.chat.requests[0].body)["tools"]
    assert [one["function"]["name"] for one in offered] == ["web_search"]
    assert calls_of(final)[0]["status"] == "completed"
    assert final["tools"] == [tool]


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
    async with asyncio.timeout(60):
        while (done := await responses.retrieve(begun.id)).status != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert [item.type for item in done.output] == ["web_search_call", "message"]
    web.hold = asyncio.Event()
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[TOOL])
    await eventually(lambda: len(web.asked) == 2)
    assert (await responses.cancel(begun.id)).status in ("cancelled", "in_progress")
    async with asyncio.timeout(60):
        while (await responses.retrieve(begun.id)).status != "cancelled":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    web.hold.set()


async def test_a_client_that_leaves_stops_the_search(world, web):
    script(world, searches())
    web.hold = asyncio.Event()
    async with serve(world.app()) as address:
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}, timeout=60) as http:
            body = {"model": MODEL, "input": "x", "stream": True, "tools": [TOOL]}
            asked = asyncio.create_task(http.post(address + "/v1/responses", json=body))
            await eventually(lambda: web.asked)
            asked.cancel()
            await asyncio.wait([asked])
        await eventually(lambda: world.log.records)
    web.hold.set()
    assert len(world.chat.requests) == 1


async def test_calls_are_bounded_in_number(world, web):
    script(world, searches())  # For ever.
    final = await respond(world, max_tool_calls=2)
    assert len(calls_of(final)) == 2
    assert len(web.asked) == 2


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
    client = world.client()
    body = {"model": MODEL, "input": "x", "tools": [TOOL], "include": SOURCES}
    line = {"custom_id": "one", "method": "POST", "url": "/v1/responses", "body": body}
    batch = await finish(client, await submit(client, jsonl(line), endpoint="/v1/responses"))
    (result,) = await lines_of(client, batch.output_file_id)
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
