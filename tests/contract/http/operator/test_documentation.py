"""The pages below /docs, as a browser without a key gets them."""

import re
from html.parser import HTMLParser

import pytest

from serve_app.asgi import ROUTES
from serve_app.documentation.resources import resources_of

PAGES = ["/docs", "/docs/guide", "/docs/guide/guides/chat", "/docs/guide/reference/settings"]
RESOURCES = [f"/docs/api/{one.slug}" for one in resources_of(route.path_format for route in ROUTES)]


@pytest.fixture
async def http(world):
    async with world.http() as http:
        del http.headers["authorization"]
        yield http


class Page(HTMLParser):
    """The ids, the links and the inline code of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded, self.inline = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.loaded += [given[name] for name in ("src", "href") if name in given and tag in ("script", "link", "img")]
        self.inline += [tag for name in given if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []


@pytest.mark.parametrize("path", [*PAGES, *RESOURCES])
async def test_a_page_loads_only_files_of_this_service_and_has_no_inline_code(http, path):
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
    page = Page(answer.text)
    assert [one for one in page.loaded if not one.startswith("/")] == page.inline == []
    assert len(page.ids) == len(set(page.ids))
    assert "<h1" in answer.text


async def test_a_page_is_rendered_once_for_each_theme(http, monkeypatch):
    misleading = await http.get(RESOURCES[0], headers={"host": "manta/docs/guide?"})
    first = await http.get(RESOURCES[0])
    assert misleading.text == first.text
    dark = await http.get(RESOURCES[0], headers={"cookie": "manta_theme=dark"})
    monkeypatch.setattr("serve_app.documentation.pages.render_page", None)
    again = await http.get(RESOURCES[0], headers={"accept-encoding": "identity"})
    assert (again.text, again.headers["content-security-policy"]) == (
        first.text,
        first.headers["content-security-policy"],
    )
    assert 'data-theme="dark"' in dark.text
    assert (await http.get(RESOURCES[0], headers={"cookie": "manta_theme=dark"})).text == dark.text
    assert (await http.get(RESOURCES[0], headers={"cookie": "manta_theme=unknown"})).text == first.text


async def test_links_of_the_reference_lead_to_pages_and_operations(http):
    texts = {path: Page((await http.get(path)).text) for path in ["/docs", "/docs/guide", *RESOURCES]}
    links = {link for page in texts.values() for link in page.links if link.startswith("/docs")}
    for link in links:
        path, _, anchor = link.partition("#")
        if path not in texts:
            texts[path] = Page((await http.get(path)).text)
        assert not anchor or anchor in texts[path].ids, link


async def test_every_route_has_a_section_with_examples_and_a_form(http):
    sections = "".join([(await http.get(path)).text for path in RESOURCES])
    for route in ROUTES:
        assert f"<code>{route.path_format}</code>" in sections
    assert sections.count("<form data-try") == len(re.findall(r'<section class="operation"', sections)) > 100
    assert 'data-language="Python"' in sections


async def test_fields_of_a_body_show_what_is_required_and_what_is_vllms(http):
    text = (await http.get("/docs/api/chat-completions")).text
    body = text[text.index("<h3>Body</h3>") :]
    names = re.findall(r'<code class="param">(\w+)</code>', body)
    assert names[:2] == ["model", "messages"]
    assert re.search(r'>messages</code>.{0,120}<span class="badge warn">required</span>', body, re.DOTALL)
    assert re.search(r'>top_k</code>.{0,120}<span class="badge">vLLM</span>', body, re.DOTALL)
    assert "The conversation so far, oldest message first." in body


async def test_the_address_of_the_service_is_in_the_introduction(http):
    assert f"{str(http.base_url).rstrip('/')}/v1" in (await http.get("/docs")).text.replace("</span>", "")


async def test_pictures_of_guides_are_served(http):
    answer = await http.get("/docs/guide/guides/console-batch.png")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")


@pytest.mark.parametrize("path", ["/docs/api/none", "/docs/guide/none", "/docs/guide/..%2fmkdocs.yml", "/docs/none"])
async def test_other_pages_are_not_found(http, path):
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


async def test_the_search_finds_operations_and_headings_of_guides(http):
    entries = (await http.get("/docs/search.json")).json()
    assert ["Upload a file", "POST /v1/files", "/docs/api/files#post_v1_files"] in entries
    assert ["Service tiers", "Chat", "/docs/guide/guides/chat#service-tiers"] in entries


async def test_pages_are_compressed_where_the_client_accepts_it(http):
    plain = await http.get("/openapi.json", headers={"accept-encoding": "identity"})
    small = await http.get("/openapi.json", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) < len(plain.content) / 5
    assert plain.json() == small.json()
