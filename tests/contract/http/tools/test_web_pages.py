"""Pages of the web that a response opens: which it may, which it may not, and how much of them it reads."""

import dataclasses
import json

import pytest

from tests.contract.http.answers import said
from tests.contract.http.response_calls import script
from tests.contract.http.web_search_calls import (
    DATA,
    GONE,
    LISBON,
    OUTLOOK,
    REPORT,
    SOURCES,
    SPORT,
    STORM,
    TOOL,
    calls_of,
    finds,
    opens,
    respond,
    searches,
    told_model,
)


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
    assert "is not in this page" in told_model(world, 3)
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
    assert "neither in a search nor in the user's messages" in told_model(world)
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
