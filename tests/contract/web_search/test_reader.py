"""Pages as text: real pages, fetched over the guard and read in a real process."""

from ipaddress import ip_network

import pytest

from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.outbound.errors import AddressRefused
from deployments.tools.outbound.fetching import Fetcher, Page
from deployments.tools.web_search.reader import PageReader, PageUnreadable, _decode, _read_html
from tests.contract.http.conftest import serve
from tests.twins.web import SITES, Web, resolve


@pytest.fixture
async def web():
    made = Web()
    async with serve(made.app()) as address:
        made.port = int(address.rpartition(":")[2])
        yield made


@pytest.fixture
async def reader():
    made = PageReader(Fetcher(AddressRules((ip_network("127.0.0.1/32"),)), resolve=resolve))
    yield made
    await made.aclose()


async def test_a_page_is_read_as_text_with_its_links(web, reader):
    page = await reader.read(web.url(SITES[0]))
    assert page.title == "Weather in Lisbon"
    assert "It is sunny, 24 degrees." in page.text
    assert f"outlook (http://weather.example:{web.port}/lisbon/tomorrow?x=1)" in page.text
    assert "steal" not in page.text
    assert "Home" not in page.text


async def test_a_short_page_is_read_whole(web, reader):
    assert (await reader.read(web.url(SITES[1]))).text == "Rain."


async def test_text_is_taken_as_it_is(web, reader):
    page = await reader.read(web.url(SITES[5]))
    assert (page.title, page.text) == (page.url, '{"degrees": 24}')


@pytest.mark.parametrize(
    ("charset", "content", "text"),
    [
        ("utf-8", "é".encode(), "é"),
        ("ISO-8859-1", b"\xe9", "é"),
        ("windows-1252", b"\x80", "€"),
        ("shift_jis", "日".encode("shift_jis"), "日"),
        ("utf-16le", "é".encode("utf-16le"), "é"),
        ("nobody-knows-it", "é".encode(), "é"),
        (
            "punycode",
            b"abc-" + b"a" * 200_000,
            "abc-" + "a" * 200_000,
        ),  # Of megabytes, decoding would take half an hour.
        ("idna", b"xn--9ca", "xn--9ca"),
        ("unicode_escape", b"\\x41", "\\x41"),
    ],
)
def test_text_is_decoded_as_it_says_if_that_is_quick(charset, content, text):
    page = Page("http://weather.example/", 200, f'text/plain; charset="{charset}"', content)
    assert _decode(page) == text


async def test_what_is_no_text_or_not_there_is_told(web, reader):
    with pytest.raises(PageUnreadable, match="'application/pdf', which is not read"):
        await reader.read(web.url(SITES[4]))
    with pytest.raises(PageUnreadable, match="status 404"):
        await reader.read(web.url(SITES[6]))


async def test_a_redirect_leads_to_no_other_domain_and_to_no_private_address(web, reader):
    leads = f"http://weather.example:{web.port}/leads?to="
    assert (await reader.read(leads + web.url(SITES[1]), ("weather.example",))).url == web.url(SITES[1])
    with pytest.raises(PageUnreadable, match="not allowed"):
        await reader.read(leads + web.url(SITES[2]), ("weather.example",))
    with pytest.raises(AddressRefused):
        await reader.read(leads + "http://169.254.169.254/latest")


def html(content: bytes, content_type: str = "text/html") -> Page:
    return Page("https://a.example/b/", 200, content_type, content)


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        ("<p>Käse".encode(), "text/html; charset=utf-8"),
        ("<p>Käse".encode("latin-1"), 'text/html; charset="iso-8859-1"'),
        ('<meta charset="iso-8859-1"><p>Käse'.encode("latin-1"), "text/html"),
        ("<p>Käse".encode(), "text/html; charset=nonsense"),
    ],
)
def test_the_encoding_is_found(content, content_type):
    assert _read_html(html(content, content_type)).text == "Käse"


def test_links_are_absolute_or_left_out():
    links = "<a href='c'>c</a> <a href='javascript:x'>j</a> <a href='mailto:a@b'>m</a> <a href='http://['>w</a>"
    assert _read_html(html(links.encode())).text.split() == ["c", "(https://a.example/b/c)", "j", "m", "w"]


def test_a_long_page_full_of_links_is_read():
    paragraph = b"<p>Some words and <a href='/a'>a <b>link</b></a> and <i>more</i> words.</p>"
    page = _read_html(html(b"<title>Long</title><main>" + paragraph * 10_000 + b"</main>"))
    assert page.text.count("Some words and a link") == 10_000
    assert page.text.count("link (https://a.example/a)") == 5_000


def test_the_process_knows_no_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('taken over')")
    assert _read_html(html(b"<p>fine")).text == "fine"


def test_a_page_that_takes_too_long_is_given_up():
    with pytest.raises(PageUnreadable, match="broken, or too much"):
        _read_html(html(b"<div>" * 1_000_000))
