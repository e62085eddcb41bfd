"""The services that search: what each is asked, and what becomes of what it answers."""

import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from deployments.config import ConfigError
from deployments.tools.config import ToolsConfig
from deployments.tools.web_search.providers import Location, Search, SearchFailed, create_provider, is_within
from tests import needs
from tests.contract.http.conftest import serve
from tests.twins.web import BRAVE_KEY, SITES, TAVILY_KEY, Web

ENVIRON = {"BRAVE_KEY": BRAVE_KEY, "TAVILY_KEY": TAVILY_KEY}
LISBON = Search("lisbon", 3)


@pytest.fixture
async def web():
    made = Web()
    async with serve(made.app()) as address:
        made.port = int(address.rpartition(":")[2])
        yield made
        for opened in made.opened:
            await opened.aclose()


def provider(web, name, environ=ENVIRON, **told):
    if name != "searxng":
        told["api_key"] = {"env": f"{name.upper()}_KEY"}
    told |= {"name": name, "url": f"http://127.0.0.1:{web.port}"}
    made = create_provider(ToolsConfig.model_validate({"web_search": {"provider": told}}), environ)
    web.opened.append(made)
    return made


@pytest.mark.parametrize("name", ["searxng", "brave", "tavily"])
async def test_a_search_returns_the_best_results(web, name):
    found = await provider(web, name).search(LISBON)
    assert [(one.url, one.title, one.text) for one in found] == [
        (web.url(site), site.title, site.about) for site in SITES[:3]
    ]


@pytest.mark.parametrize("name", ["searxng", "brave", "tavily"])
async def test_results_are_of_the_domains(web, name):
    found = await provider(web, name).search(Search("lisbon", 10, ("news.example", "sub.news.example")))
    assert [one.title for one in found] == ["Storm near Lisbon", "Sport in Lisbon"]
    (asked,) = web.asked
    if name == "tavily":
        assert asked["include_domains"] == ["news.example", "sub.news.example"]
    else:
        assert asked["q"] == "lisbon (site:news.example OR site:sub.news.example)"


async def test_a_real_searxng_is_understood():
    told = {"web_search": {"provider": {"name": "searxng", "url": needs.searxng()}}}
    real = create_provider(ToolsConfig.model_validate(told))
    found = await real.search(Search("lisbon", 3))
    await real.aclose()
    assert 0 < len(found) <= 3
    assert all(one.url.startswith("http") and one.title and one.text for one in found)


async def test_what_searxng_is_asked(web):
    await provider(web, "searxng", engines=("here", "there"), language="de").search(Search("lisbon & more", 3))
    assert web.asked == [{"q": "lisbon & more", "format": "json", "engines": "here,there", "language": "de"}]


async def test_what_brave_is_asked(web):
    where = Location("DE", "Köln", "Bonn", "Europe/Berlin")
    await provider(web, "brave").search(Search("word " * 60, 30, location=where))
    (asked,), (headers,) = web.asked, web.headers
    told = {"count": "20", "result_filter": "web", "text_decorations": "false", "country": "DE"}
    assert asked == {"q": " ".join(["word"] * 50), **told}
    assert (headers["x-loc-city"], headers["x-loc-country"]) == ("Bonn", "DE")
    assert headers["x-loc-timezone"] == "Europe/Berlin"
    assert "x-loc-state-name" not in headers  # Headers carry ASCII only.
    await provider(web, "brave").search(Search("lisbon", 3, location=Location("PT")))
    assert web.asked[-1]["country"] == "PT"
    await provider(web, "brave").search(Search("lisbon", 3, location=Location("LU")))
    assert "country" not in web.asked[-1]  # Brave does not take it.


async def test_what_tavily_is_asked(web):
    await provider(web, "tavily").search(Search("lisbon", 30))
    assert web.asked == [{"query": "lisbon", "max_results": 20, "search_depth": "basic"}]


@pytest.mark.parametrize("name", ["brave", "tavily"])
async def test_a_wrong_key_fails_and_is_not_told(web, name):
    wrong = provider(web, name, {f"{name.upper()}_KEY": "wrong-key"})
    with pytest.raises(SearchFailed, match="status 4") as failed:
        await wrong.search(LISBON)
    assert "wrong-key" not in str(failed.value)


@pytest.mark.parametrize("name", ["brave", "tavily"])
def test_a_key_that_is_nowhere_is_named(web, name):
    with pytest.raises(ConfigError, match=f"{name.upper()}_KEY, which is not set"):
        provider(web, name, {})


async def test_a_searxng_without_json_is_told(web):
    web.formats = ("html",)
    with pytest.raises(SearchFailed, match="status 403"):
        await provider(web, "searxng").search(LISBON)


@pytest.mark.parametrize("name", ["searxng", "brave", "tavily"])
@pytest.mark.parametrize(
    "told",
    [
        *([], None, 5, {}, {"results": None, "web": None}, {"results": {}, "web": {"results": 5}}),
        {"results": [5, {}, {"url": 5}], "web": {"results": [5, {}, {"url": 5}]}},
    ],
)
async def test_nonsense_finds_nothing(web, name, told):
    web.answer = JSONResponse(told)
    assert await provider(web, name).search(LISBON) == []


async def test_what_is_no_address_of_the_web_or_there_twice_is_left_out(web):
    urls = ["javascript:alert(1)", "file:///etc/passwd", "http://", "http://[", "http://a.example/" + "a" * 3000]
    urls += ["http://a.example/", "http://a.example/", "https://b.example/"]
    web.answer = JSONResponse({"results": [{"url": url, "title": None, "content": " a\n b "} for url in urls]})
    found = await provider(web, "searxng").search(Search("lisbon", 10))
    assert [(one.url, one.title, one.text) for one in found] == [
        ("http://a.example/", "http://a.example/", "a b"),
        ("https://b.example/", "https://b.example/", "a b"),
    ]


async def test_what_is_not_json_fails(web):
    web.answer = PlainTextResponse("<html>")
    with pytest.raises(SearchFailed, match="not answer in JSON"):
        await provider(web, "searxng").search(LISBON)


async def test_a_service_that_is_not_there_fails(web):
    gone = provider(web, "searxng")
    web.port = 9
    with pytest.raises(SearchFailed, match="could not be asked"):
        await provider(web, "searxng").search(LISBON)
    assert await gone.search(LISBON)


@pytest.mark.parametrize(
    ("url", "is_in"),
    [
        ("https://a.example/x", True),
        ("https://A.example.:8443/x", True),
        ("https://b.a.example/x", True),
        ("https://ba.example/x", False),
        ("https://a.example.org/x", False),
        ("https://b.example/?a.example", False),
        ("https://a.example@b.example/", False),
        ("ftp://a.example/x", False),
    ],
)
def test_a_domain_holds_what_lies_below_it(url, is_in):
    assert is_within(url, ("a.example",)) is is_in
