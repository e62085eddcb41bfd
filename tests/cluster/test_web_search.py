"""The web search on the real service: a real model asks, the provider answers, the model cites the page."""

import pytest
from openai import OpenAI

from tests.service import TRAINED
from tests.twins.web import SITES, Web

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_the_model_searches_and_cites_the_page(client: OpenAI, web: Web) -> None:
    (mills,) = (site for site in SITES if site.title == "Windmills")
    response = client.responses.create(
        model=TRAINED,
        input="Search the web for windmills.",
        tools=[{"type": "web_search"}],
        include=["web_search_call.action.sources"],
        temperature=0,
    )
    call, message = response.output
    assert call.type == "web_search_call"
    assert call.action.type == "search"
    assert (call.status, call.action.queries) == ("completed", ["windmills"])
    assert call.action.sources is not None
    assert [source.url for source in call.action.sources] == [web.url(mills)]
    assert [asked["q"] for asked in web.asked] == ["windmills"]
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    (cited,) = part.annotations
    assert cited.type == "url_citation"
    assert (cited.url, cited.title) == (web.url(mills), "Windmills")
    assert part.text[cited.start_index : cited.end_index] == f"[Windmills]({web.url(mills)})"
    assert mills.about in part.text
